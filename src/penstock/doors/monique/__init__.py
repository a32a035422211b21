"""The MoniQue door: a WebSocket gateway, a scheduler for ZeroMQ components, and a controller for workers."""

from penstock.doors.monique.door import MoniqueDoor

__all__ = ["MoniqueDoor"]
