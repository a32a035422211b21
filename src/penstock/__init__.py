"""Penstock: a durable, replicated priority task queue that speaks the protocols of existing systems."""

from __future__ import annotations

__version__ = "0.1.0"
