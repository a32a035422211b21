"""A run of a store in which everything happens, and what its caller knows at each moment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.storage.disk import Disk
from penstock.storage.store import StoreSettings
from tests.storage.support import SMALL, entries, open_store, replay, rows_of, take_snapshot


@dataclass
class Facts:
    """What the caller of the store knows at a moment: what is confirmed, and what is being asked for."""

    acked: int = -1
    appended: int = -1
    term: int = 0
    term_asked: int = 0
    snapshot: int = -1
    snapshot_asked: int = -1
    retiring: bool = False


class Scenario:
    """A run of a store, with the caller's knowledge at each system call."""

    def __init__(self, root: Path, disk: Disk, facts: Facts, settings: StoreSettings = SMALL) -> None:
        self.root, self.disk, self.facts, self.settings = root, disk, facts, settings
        self.next = 0
        self.store, self.recovered = open_store(root, settings, disk)

    def reopen(self) -> None:
        """Close, open, and do what a node does at start."""
        self.store.close()
        self.store, self.recovered = open_store(self.root, self.settings, self.disk)
        replay(self.store, self.recovered)
        self.next = self.store.last_index + 1

    def write(self, count: int) -> None:
        """Append, sync and apply so many entries as one batch."""
        batch = entries(self.next, self.next + count)
        self.facts.appended = batch[-1][0]
        self.store.append(batch)
        self.store.sync()
        self.facts.acked = batch[-1][0]
        for index, _, _ in batch:
            self.store.journal_append(index, rows_of(index))
        self.next += count

    def save_term(self, term: int) -> None:
        self.facts.term_asked = term
        self.store.save_metadata(term, 3)
        self.facts.term = term

    def snapshot(self) -> None:
        self.facts.snapshot_asked = self.next - 1
        take_snapshot(self.store, self.next - 1)
        self.facts.snapshot = self.next - 1

    def drop(self, count: int) -> None:
        """Append entries that nobody applies, and drop them again."""
        self.facts.appended = self.next + count - 1
        self.store.append(entries(self.next, self.next + count))
        self.store.sync()
        self.store.truncate_from(self.next)
        self.facts.appended = self.next - 1
