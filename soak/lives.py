"""One life of the node after the other: start it, look at all it holds, load it, kill it, and begin again."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final

from penstock.engine import commands as c
from penstock.engine.errors import Refusal
from penstock.engine.views import QueueView, RecordView
from penstock.wire.native import messages as m
from soak import notes as n
from soak.client import Connection
from soak.judge import Judge
from soak.notes import Notebook
from soak.process import Served, ServedFailed, wait_until
from soak.sites import SitePage
from soak.workers import QUEUE, Putter, Taker, Traffic, Worker

KIB: Final = 1024
STORAGE: Final = {
    "segment_bytes": 64 * KIB,
    "snapshot_bytes": 96 * KIB,
    "retention_bytes": 512 * KIB,
    "reserve_bytes": 256 * KIB,
}
"""So small that rolls, snapshots, renames and retention happen all the time."""

IDLE: Final = "between two system calls"
HOLD_S_MAX: Final = 30.0
_FIRST_ENTRY_S: Final = 1.0
"""How long after it opened its doors a node may still be at the first entry of its term."""
_PAGE_RECORDS: Final = 1000
_BAD_LINES: Final = re.compile(r"^(ERROR|CRITICAL|Traceback|.*Error:|Exception|Fatal).*$", re.MULTILINE)


class Lives:
    """A data directory, the processes that live on it in turn, the workers and the judge."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        putters: int = 2,
        takers: int = 2,
        backlog_max: int = 2000,
        storage: dict[str, int] | None = None,
        fault: dict[str, Any] | None = None,
    ) -> None:
        self.random = Random(seed)
        self.judge = Judge()
        self.points: Counter[str] = Counter()
        """Where the node was when it was killed."""
        self.sites: set[str] = set()
        """Every site that any life has been at."""
        self.kills = 0
        self.start_s_max = 0.0
        self.data_dir = directory / "data"
        self._directory = directory
        self._storage = STORAGE | (storage or {})
        self._fault = fault
        self._notebook = Notebook(directory / "notes")
        self.traffic = Traffic(self._notebook, self.judge, backlog_max)
        self._workers = self._make_workers(putters, takers)
        self._made = 0
        self._standby = self._prepare()
        self.served, self.page = self._standby

    def _make_workers(self, putters: int, takers: int) -> list[Worker]:
        def seed() -> int:
            return self.random.getrandbits(32)

        workers: list[Worker] = [Putter(i, self.traffic, seed(), repeats=i % 2 == 0) for i in range(putters)]
        workers += [Taker(putters + i, self.traffic, seed()) for i in range(takers)]
        return workers

    def _prepare(self) -> tuple[Served, SitePage]:
        """A process that stands by to be the next life."""
        self._made += 1
        page_path = self._directory / f"page-{self._made % 3}"
        page = SitePage.create(page_path)
        options = {
            "data_dir": str(self.data_dir),
            "page": str(page_path),
            "storage": self._storage,
            "fault": self._fault,
        }
        return Served(options, self._directory / f"errors-{self._made % 3}"), page

    # A life.

    def start(self, *, arm: str = "") -> bool:
        """Begin the next life and judge what it holds. With `arm`, false if it was killed at that site on its way."""
        self.served, self.page = self._standby
        if arm:
            self.page.arm(arm)
        began = time.monotonic()
        self.served.begin()
        self._standby = self._prepare()
        if not wait_until(lambda: self.page.held or self.served.is_ready(), HOLD_S_MAX):
            raise ServedFailed("the node neither started nor came to the armed site", self.served.errors())
        if arm and wait_until(lambda: self.page.held, _FIRST_ENTRY_S):
            self._kill()
            return False
        self.page.arm("")
        self.served.wait_ready()
        self.start_s_max = max(self.start_s_max, time.monotonic() - began)
        with Connection(self.served.port) as connection:
            self.judge.term(connection.term)
            connection.ask(c.CreateQueue(QUEUE, c.QueueSettings(), if_absent=True))
            self._await_quiet(connection)
            self.judge.survey(self._browse(connection), self._ask(connection, m.Peek(QUEUE, _PAGE_RECORDS)))
        return True

    def load(self) -> None:
        """Let the workers begin."""
        self.traffic.over.clear()
        self.traffic.put, self.traffic.ended = len(self.judge.live), 0
        for worker in self._workers:
            worker.start(self.served.port)

    def kill(self, *, at: str = "", skip: int = 0) -> str:
        """Kill the node, now or when it comes to a site; returns where it was. The notes are judged up to then."""
        if at:
            self.page.arm(at, skip)
            self._watch(HOLD_S_MAX)
        self.traffic.over.set()
        point = self._kill()
        for worker in self._workers:
            worker.join()
        self._notebook.write([(n.LIFE_ENDED, 0, 0, 0, 0, 0)])
        self.read_notes()
        self._notebook.forget_read()
        return point

    def _watch(self, timeout_s: float) -> None:
        """Wait for the node to come to the armed site; if it does not, it is killed wherever it is."""
        wait_until(lambda: self.page.held or self.served.process.poll() is not None, timeout_s)

    def _kill(self) -> str:
        ended_by_itself = self.served.process.poll()
        self.served.kill()
        if ended_by_itself is not None:
            self.judge.complain(f"the node ended by itself with code {ended_by_itself}: {self.served.errors()}")
        self._read_errors()
        self.kills += 1
        where = self.page.where()
        for site in where or [IDLE]:
            self.points[site] += 1
        self.sites.update(self.page.sites())
        self.page.close()
        return " and ".join(where) or IDLE

    def _read_errors(self) -> None:
        bad = _BAD_LINES.search(self.served.errors())
        if bad is not None:
            self.judge.complain(f"the node wrote: {self.served.errors()}")

    def read_notes(self) -> None:
        """Judge what the workers have noted since the last time."""
        self.judge.feed(self._notebook.unread())

    # Looking at a node.

    def _ask(self, connection: Connection, args: Any) -> Any:
        answer = connection.ask(args)
        if isinstance(answer, Refusal):
            raise ServedFailed(f"{type(args).__name__} was refused: {answer}", self.served.errors())
        return answer

    def _await_quiet(self, connection: Connection) -> None:
        """Leases of connections that are gone end with the new term, other leases and delays when their time comes."""

        def is_quiet() -> bool:
            figures = self.figures(connection)
            return not figures.leased and not figures.delayed

        if not wait_until(is_quiet, every_s=0.005):
            self.judge.complain("records stay leased or delayed though nobody holds them and their time has come")

    def figures(self, connection: Connection) -> QueueView:
        """The queue's figures."""
        view: QueueView = self._ask(connection, m.ShowQueue(QUEUE))
        return view

    def _browse(self, connection: Connection) -> list[RecordView]:
        records: list[RecordView] = []
        cursor = 0
        while True:
            page = self._ask(connection, m.Browse(QUEUE, None, None, cursor, _PAGE_RECORDS))
            records += page.records
            cursor = page.cursor
            if not cursor:
                return records

    def drain(self) -> None:
        """Take everything for good and judge it: the end of a run, on a node that nobody else uses."""
        with Connection(self.served.port) as connection:
            self._await_quiet(connection)
            taken: list[tuple[int, int]] = []
            while records := self._ask(connection, c.Take(QUEUE, _PAGE_RECORDS, final=True)).records:
                for record in records:
                    self.judge.record(record.id, record.key, record.payload)
                taken += [(record.key, record.id) for record in records]
            self.judge.drained(taken)

    def close(self) -> None:
        """End all that was started."""
        self.traffic.over.set()
        for served in (self.served, self._standby[0]):
            served.kill()
        for worker in self._workers:
            worker.join()
        self._notebook.close()

    def __enter__(self) -> Lives:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
