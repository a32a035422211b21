"""Connections that play their scripts, many at a time, on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Final

from fuzz.sessions.scripts import ABORT, HALF_CLOSE, Script
from penstock.wire.native.errors import FrameError
from penstock.wire.native.frames import FrameReader

AT_A_TIME: Final = 24
_ANSWER_WAIT_S: Final = 0.02
"""How long a session waits now and then for an answer, to learn what it was given; not waiting would do, too."""
_STUCK_S: Final = 2.0
"""How long a session tries to send to a node that does not read from it, before it gives up."""
_HANDSHAKE: Final = b"a\x01b\x01"
_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024


async def play(script: Script, port: int) -> int:
    """Send a script's inputs and end as it says; returns how many were sent."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return 0
    listener = _Listener(reader, script.learn)
    listening = asyncio.create_task(listener.run()) if script.reads else None
    sent = 0
    try:
        for data in script.inputs:
            writer.write(data)
            sent += 1
            if sent == 1 and script.waits_first:
                await (listener.something(_STUCK_S) if script.reads else asyncio.wait_for(reader.read(1), _STUCK_S))
            elif sent % 4 == 0:
                await asyncio.wait_for(writer.drain(), _STUCK_S)
                await listener.something(_ANSWER_WAIT_S if script.reads else 0.0)
        await _end(script, reader, writer)
    except (OSError, TimeoutError):
        pass  # the node closed the connection, as it may
    finally:
        if listening is not None:
            listening.cancel()
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return sent


async def _end(script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if script.ending == ABORT:
        # A reset instead of an orderly end.
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    elif script.ending == HALF_CLOSE and writer.can_write_eof():
        writer.write_eof()
        if not script.reads:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), _ANSWER_WAIT_S)
    else:
        writer.close()


class _Listener:
    """Takes in what the node says, and hands native frames to the script."""

    def __init__(self, reader: asyncio.StreamReader, learn: Callable[[int, bytes], None] | None) -> None:
        self._reader = reader
        self._learn = learn
        self._came = asyncio.Event()

    async def run(self) -> None:
        frames = FrameReader(_FRAME_BYTES_MAX)
        head = b""
        with contextlib.suppress(OSError, FrameError):
            while data := await self._reader.read(1 << 16):
                self._came.set()
                if self._learn is None:
                    continue
                if len(head) < len(_HANDSHAKE):
                    head += data
                    data = head[len(_HANDSHAKE) :]
                    if len(head) < len(_HANDSHAKE):
                        continue
                    if not head.startswith(_HANDSHAKE):
                        self._learn = None
                        continue
                for status, _, body in frames.feed(data):
                    self._learn(status, body)

    async def something(self, within_s: float) -> None:
        """Wait until something came since the last call, but not for long."""
        if within_s:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._came.wait(), within_s)
        else:
            await asyncio.sleep(0)
        self._came.clear()
