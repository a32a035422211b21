"""Why a message is not published though its frames are sound.

NotPublished               (a MoniqueError of the wire, as tag and body errors are)
├── SpecNotAllowed         allow-messages does not name its spec
├── MessageTooLong         its body is longer than a payload may be
├── WrongFrameCount        it did not come as a tag and a body
└── KillsNobody            a kill that names no task, which would restart every idle component

NoMemoryForPatterns        (a MoniqueError) all clients together have too many patterns
"""

from __future__ import annotations

from typing import ClassVar

from penstock.wire.monique.errors import MoniqueError


class NotPublished(MoniqueError):
    """A message that is refused by the rules of this node; the text is fit for its sender."""

    code: ClassVar[str] = "monique-not-published"


class SpecNotAllowed(NotPublished):
    """The specs that may be published are listed, and this one is not among them."""

    code: ClassVar[str] = "monique-spec-not-allowed"

    def __init__(self, spec: str) -> None:
        super().__init__(f"messages of spec {spec[:100]!r} are not allowed here")
        self.spec = spec


class MessageTooLong(NotPublished):
    """The body is longer than the node's limit of a payload."""

    code: ClassVar[str] = "monique-message-too-long"

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"a message of {length} bytes is longer than the limit of {limit}")
        self.length = length
        self.limit = limit


class WrongFrameCount(NotPublished):
    """A ZeroMQ message of MoniQue has two frames."""

    code: ClassVar[str] = "monique-wrong-frame-count"

    def __init__(self, count: int) -> None:
        super().__init__(f"expected [tag, content], and {count} frames came")
        self.count = count


class KillsNobody(NotPublished):
    """Idle components take the empty task for their own: such a kill would restart them all."""

    code: ClassVar[str] = "monique-kills-nobody"

    def __init__(self) -> None:
        super().__init__("a kill without a task_id is ignored")


class NoMemoryForPatterns(MoniqueError):
    """The patterns of all clients together need as much memory as they may."""

    code: ClassVar[str] = "monique-no-memory-for-patterns"

    def __init__(self) -> None:
        super().__init__("all clients together have too many patterns; unsubscribe from some, or try again later")
