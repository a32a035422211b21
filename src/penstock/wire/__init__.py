"""One sans-IO codec per protocol: bytes in, typed messages out, and back, for both sides of each conversation.

What belongs here: the layout of bytes, and the order in which packets may come. What does not: sockets, clocks,
randomness, logging, and any decision about queues. A door or a client owns the socket, feeds a codec what it has read
and writes what the codec hands back.
"""
