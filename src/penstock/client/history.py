"""The whole history of a cluster, raw and in order: for programs that keep tables of it.

Blocking, on one socket of its own, since its pieces are large and its readers have nothing else to do: the next piece
is asked for before the last one is looked at. Everything here only reads, so whatever fails is simply asked again, of
the next endpoint if need be.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final

from msgspec.structs import replace

from penstock.client.blocking import BlockingLink
from penstock.client.errors import BadAnswer, refused
from penstock.client.protocol import ANSWER_BYTES_MAX, Call
from penstock.engine.errors import Refusal
from penstock.wire.native import messages as m
from penstock.wire.native.errors import BadPiece, BadSnapshot
from penstock.wire.native.pieces import HeadsCheck, check_each_head, check_piece
from penstock.wire.native.snapshots import SnapshotDecoder

_SNAPSHOT_WAIT_MS: Final = 20_000
_SNAPSHOT_PIECE_BYTES: Final = 4 * 1024 * 1024


class HistoryReader:
    """Reads the history through any node of a cluster. Use it in a ``with`` block; not from two threads at once.

    ``check_heads`` may be a quicker way to check many records at once.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_timeout: float = 5.0,
        retry_timeout: float = 30.0,
        frame_bytes_max: int = ANSWER_BYTES_MAX,
        check_heads: HeadsCheck = check_each_head,
    ) -> None:
        self._check_heads = check_heads
        self._link = BlockingLink(
            url,
            client="history",
            connect_timeout=connect_timeout,
            retry_timeout=retry_timeout,
            frame_bytes_max=frame_bytes_max,
        )
        self._early: dict[int, Any] = {}
        """Answers that came while another one was waited for, by the number of their call."""

    def __enter__(self) -> HistoryReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        self._link.close()

    def reach(self, after: int = -1, wait_seconds: float = 0.0) -> m.Reach:
        """How far the history reaches; waits for an entry after ``after`` if that is asked for."""
        answer: m.Reach = self._ask(m.Latest(after, round(wait_seconds * 1000)))
        return answer

    def queue_names(self) -> dict[int, str]:
        """The names of queues by uid, also of queues that were deleted lately."""
        return {queue.uid: queue.name for queue in self._ask(m.QueueNames())}

    def find_time(self, time_us: int) -> int:
        """The first entry that was stamped at a time or later; one behind the last if there is none."""
        answer: m.IndexFound = self._ask(m.FindTime(max(0, time_us)))
        return answer.index

    def entries(self, indexes: list[int]) -> dict[int, bytes]:
        """Single entries by index; those that are gone are missing."""
        found: dict[int, bytes] = {}
        start = 0
        while start < len(indexes):
            some = indexes[start : start + m.ENTRIES_PER_READ_MAX]
            answer: m.EntriesRead = self._ask(m.ReadEntries(some, in_parts=True))
            if answer.entry_bytes:
                found[some[0]] = self._long_entry(some[0], answer)
            else:
                found |= {index: entry for index, entry in zip(some, answer.entries, strict=False) if entry is not None}
            start += len(answer.entries)
        return found

    def _long_entry(self, index: int, answer: m.EntriesRead) -> bytes:
        """An entry that is longer than one answer."""
        parts: list[bytes] = []
        have, size_bytes = 0, answer.entry_bytes
        while True:
            part = answer.entries[0] if len(answer.entries) == 1 else None
            if not part or answer.entry_bytes != size_bytes or have + len(part) > size_bytes:
                raise BadAnswer("READ_ENTRIES", f"entry {index} has {size_bytes} bytes, but no part follows at {have}")
            parts.append(part)
            have += len(part)
            if have == size_bytes:
                return b"".join(parts)
            answer = self._ask(m.ReadEntries([index], in_parts=True, offset=have))

    def cuts(
        self, first_index: int, last_index: int, *, rows_max: int = 0, bytes_max: int = 0, count_max: int = 0
    ) -> list[m.Cut]:
        """These entries, both included, as consecutive ranges: each as long as it can be within the limits.

        A limit of 0 is none. A range has at least one block of events and ends where a block ends, so it can be a
        little more than asked for. Where there are more than ``count_max`` ranges, or than ``CUTS_MAX``, the last one
        ends before `last_index`. Raises ``HistoryGone`` where the history begins later.
        """
        answer: list[m.Cut] = self._ask(m.CutJournal(first_index, last_index, rows_max, bytes_max, count_max))
        return answer

    def pieces(
        self, first_index: int, last_index: int, *, bytes_max: int = m.PIECE_BYTES_MAX, with_log: bool = True
    ) -> Iterator[m.JournalPiece]:
        """The history of these entries, both included, piece by piece, checked.

        Raises ``HistoryGone`` where it begins later, ``BadAnswer`` for a piece that is damaged.
        """
        call: Call | None = None
        while first_index <= last_index:
            request = m.ReadJournal(first_index, last_index, bytes_max, with_log, in_parts=True)
            piece = self._whole(request, self._ask(request, call))
            first_index = piece.last_index + 1
            ahead = m.ReadJournal(first_index, last_index, bytes_max, with_log, in_parts=True)
            call = self._send_ahead(ahead, last_index)
            try:
                check_piece(piece, self._check_heads)
            except BadPiece as error:
                raise BadAnswer("READ_JOURNAL", str(error)) from error
            yield piece

    def _whole(self, request: m.ReadJournal, first: m.JournalPiece) -> m.JournalPiece:
        """The piece whose first part was answered to a request; most pieces have no other."""
        blocks, log = [first.blocks], [first.log]
        part, have_blocks, have_log = first, len(first.blocks), len(first.log)
        while part.blocks_bytes + part.log_bytes and (have_blocks < first.blocks_bytes or have_log < first.log_bytes):
            part = self._ask(replace(request, last_index=first.last_index, blocks_from=have_blocks, log_from=have_log))
            new_blocks = part.blocks if have_blocks < first.blocks_bytes else b""
            is_other = (part.first_index, part.last_index) != (first.first_index, first.last_index)
            # An open block may grow meanwhile, but then all of it was in the first part. A mark may follow the last
            # entry meanwhile; it is no part of the piece.
            new_log = part.log[: first.log_bytes - have_log]
            is_other |= part.log_bytes < first.log_bytes
            is_other |= bool(new_blocks) and part.blocks_bytes != first.blocks_bytes
            if is_other or not (new_blocks or new_log):
                raise BadAnswer(
                    "READ_JOURNAL", f"a part of the piece from {first.first_index} on does not belong to it"
                )
            blocks.append(new_blocks)
            log.append(new_log)
            have_blocks, have_log = have_blocks + len(new_blocks), have_log + len(new_log)
        if len(log) == 1:
            return first
        return replace(first, blocks=b"".join(blocks), log=b"".join(log), blocks_bytes=0, log_bytes=0)

    def state(self) -> tuple[int, Iterator[bytes]]:
        """The whole state as it is now: its index, and the blocks of a snapshot of the engine, read as they are used.

        The node goes on serving and holds the snapshot meanwhile. Whoever pauses for more than a minute, or whose node
        is replaced, may come too late: then the iterator raises ``HistoryGone``, and the state is to be asked for anew.
        """
        at_least = max(0, self.reach().applied_index)
        taken: m.SnapshotTaken = self._ask(m.Snapshot(at_least, _SNAPSHOT_WAIT_MS))
        while taken.index < 0:
            taken = self._ask(m.Snapshot(at_least, _SNAPSHOT_WAIT_MS))
        return taken.index, self._snapshot_blocks(taken)

    def _snapshot_blocks(self, taken: m.SnapshotTaken) -> Iterator[bytes]:
        decoder = SnapshotDecoder(taken.index)
        offset = 0
        try:
            while not decoder.is_whole:
                piece: m.SnapshotPiece = self._ask(m.ReadSnapshot(taken.index, offset, _SNAPSHOT_PIECE_BYTES))
                if not piece.data:
                    raise BadAnswer("READ_SNAPSHOT", f"it ends after {offset} bytes of {taken.bytes}")
                offset += len(piece.data)
                yield from decoder.feed(piece.data)
        except BadSnapshot as error:
            raise BadAnswer("READ_SNAPSHOT", error.reason) from error

    # The conversation.

    def _send_ahead(self, request: m.ReadJournal, last_index: int) -> Call | None:
        if request.first_index > last_index:
            return None
        self._early.clear()  # what is left was asked ahead by somebody who went no further
        return self._link.send(request)

    def _ask(self, request: Any, call: Call | None = None) -> Any:
        """The answer to a request, which may have been sent before, as `call`."""
        call = self._link.send(request) if call is None else call
        while call.number not in self._early:
            for answered, answer in self._link.receive():
                self._early[answered.number] = answer
        answer = self._early.pop(call.number)
        if isinstance(answer, Refusal):
            raise refused(answer)
        return answer
