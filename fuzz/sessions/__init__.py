"""Whole sessions against a running node: every door, many connections at a time, each with its own bad habits.

    values     random arguments for every request of the native protocol, made from the types themselves
    scripts    what one connection sends, door by door, and how it ends
    clients    many connections that play their scripts at once
    serving    the node: a process with files, watched from outside
    health     what must still work afterwards
    run        sessions until enough inputs were sent, then the health check

An input is one request, whole, damaged or cut. The same seed gives the same scripts; how the node meets them in time
differs from run to run.
"""
