"""The deterministic state machine: queues, keys, policies, leases, delays, expiry, dead letters, topics.

``machine.Engine`` is the way in; ``commands`` and ``answers`` are its language; ``snapshot`` saves and restores it.
"""

from penstock.engine.machine import Engine

__all__ = ["Engine"]
