"""Whether one client can make all others wait: the event loop of a real node under attack.

    served    the node, on a loop that measures how much CPU time each callback takes
    attacks   what one client can do, each at a size that hurt once
    run       every attack in turn, beside a client that pings, and the table of what happened

A callback may take 20 ms of CPU time. CPU time and not time on the wall: a busy machine proves nothing.
"""
