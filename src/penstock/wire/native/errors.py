"""What can be wrong with the bytes of a native connection. Each of these ends the connection.

    NativeError
     ├─ FrameError
     │   ├─ FrameTooLong   (length, limit, frame_code, request)
     │   └─ FrameTooShort  (length, limit)
     ├─ BadPiece           (part, at, reason)
     └─ BadSnapshot        (reason)

What is wrong inside a frame ends nothing: it is answered ``BAD_REQUEST`` and the connection lives.
"""

from __future__ import annotations


class NativeError(Exception):
    """A native connection that cannot go on."""

    code = "native"


class FrameError(NativeError):
    """A frame whose length cannot be right."""

    code = "frame"

    def __init__(self, length: int, limit: int, text: str) -> None:
        super().__init__(text)
        self.length = length
        self.limit = limit


class FrameTooLong(FrameError):
    """The frame is longer than the receiver allows."""

    code = "frame-too-long"

    def __init__(self, length: int, limit: int, frame_code: int = 0, request: int = 0) -> None:
        super().__init__(length, limit, f"a frame of {length} bytes is longer than the limit of {limit}")
        self.frame_code = frame_code
        self.request = request


class FrameTooShort(FrameError):
    """The frame has no room for its own header."""

    code = "frame-too-short"

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(length, limit, f"a frame of {length} bytes cannot hold its header of {limit}")


class BadPiece(NativeError):
    """A piece of the history is not what the node wrote; `part` (blocks, offsets or log) and `at` say where."""

    code = "bad-piece"

    def __init__(self, part: str, at: int, reason: str) -> None:
        super().__init__(f"the piece of the history is damaged, byte {at} of its {part}: {reason}")
        self.part = part
        self.at = at
        self.reason = reason


class BadSnapshot(NativeError):
    """The bytes of a snapshot are not what the node wrote."""

    code = "bad-snapshot"

    def __init__(self, reason: str) -> None:
        super().__init__(f"the snapshot cannot be read: {reason}")
        self.reason = reason
