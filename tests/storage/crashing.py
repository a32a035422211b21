"""A model of what a power cut can leave on disk.

``CrashDisk`` does everything for real and keeps a model beside it: which bytes of each file are synced, and which
changes of names are. After every system call it takes a picture. ``states_after_crash`` turns a picture into every
state that a power cut at that moment could leave: each change of a name that was not synced may have happened or not,
on its own; bytes that were not synced are there, are not, or are there in part. A rename between directories may reach
the new one first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from tests.storage.support import FastDisk

T = TypeVar("T")


@dataclass
class File:
    """A file, whatever its names are."""

    now: bytes = b""
    synced: bytes = b""


@dataclass(frozen=True)
class Change:
    """A change of names that is not synced yet: `removed` goes, `added` becomes the file."""

    directories: frozenset[Path]
    added: Path | None
    removed: Path | None
    file: int


@dataclass(frozen=True)
class Picture:
    """The disk between two system calls."""

    site: str
    names: dict[Path, int]
    pending: tuple[Change, ...]
    now: dict[int, bytes]
    synced: dict[int, bytes]
    facts: Any


@dataclass
class CrashDisk(FastDisk):
    """A disk that could stop at any moment."""

    root: Path
    facts: Callable[[], Any] = lambda: None
    pictures: list[Picture] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._files: dict[int, File] = {}
        self._current: dict[Path, int] = {}
        self._durable: dict[Path, int] = {}
        self._pending: list[Change] = []
        self._open: dict[int, int] = {}
        numbers: dict[int, int] = {}
        for path in sorted(self.root.rglob("*")):
            if path.is_file():
                inode = path.stat().st_ino
                if inode not in numbers:
                    numbers[inode] = self._new_file(path.read_bytes())
                self._current[path] = self._durable[path] = numbers[inode]

    def create(self, path: Path, site: str) -> int:
        descriptor = super().create(path, site)
        if path in self._current:
            self._pending.append(Change(frozenset({path.parent}), None, path, self._current.pop(path)))
        self._link(path)
        self._opened(descriptor, path)
        return self._pictured(site, descriptor)

    def open(self, path: Path, site: str) -> int:
        descriptor = super().open(path, site)
        if path not in self._current:
            self._link(path)
        self._opened(descriptor, path)
        return self._pictured(site, descriptor)

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, offset: int, site: str, path: Path) -> None:
        super().pwrite(descriptor, data, offset, site, path)
        file = self._file(descriptor)
        now = file.now.ljust(offset, b"\0")
        file.now = now[:offset] + bytes(data) + now[offset + len(data) :]
        self._pictured(site, None)

    def allocate(self, descriptor: int, length: int, site: str, path: Path) -> bool:
        done = super().allocate(descriptor, length, site, path)
        file = self._file(descriptor)
        file.now = file.now.ljust(length, b"\0")
        return self._pictured(site, done)

    def truncate(self, descriptor: int, length: int, site: str, path: Path) -> None:
        super().truncate(descriptor, length, site, path)
        self._file(descriptor).now = self._file(descriptor).now[:length]
        self._pictured(site, None)

    def fdatasync(self, descriptor: int, site: str, path: Path) -> None:
        super().fdatasync(descriptor, site, path)
        self._file(descriptor).synced = self._file(descriptor).now
        self._pictured(site, None)

    def fsync_directory(self, path: Path, site: str) -> None:
        super().fsync_directory(path, site)
        for change in [change for change in self._pending if path in change.directories]:
            self._pending.remove(change)
            _apply(change, self._durable)
        self._pictured(site, None)

    def rename(self, source: Path, target: Path, site: str) -> None:
        super().rename(source, target, site)
        if self._current[source] == self._current.get(target):
            # Two names of one file: the system leaves both.
            self._pictured(site, None)
            return
        number = self._current.pop(source)
        self._current[target] = number
        directories = frozenset({source.parent, target.parent})
        self._pending.append(Change(directories, target, source, number))
        self._pictured(site, None)

    def link(self, source: Path, target: Path, site: str) -> bool:
        done = super().link(source, target, site)
        if done:
            self._current[target] = number = self._current[source]
            self._pending.append(Change(frozenset({target.parent}), target, None, number))
        return self._pictured(site, done)

    def unlink(self, path: Path, site: str) -> None:
        there = path.exists()
        super().unlink(path, site)
        if there:
            number = self._current.pop(path)
            self._pending.append(Change(frozenset({path.parent}), None, path, number))
        self._pictured(site, None)

    def _link(self, path: Path) -> None:
        number = self._new_file(b"")
        self._current[path] = number
        self._pending.append(Change(frozenset({path.parent}), path, None, number))

    def _new_file(self, data: bytes) -> int:
        number = len(self._files)
        self._files[number] = File(data, data)
        return number

    def _opened(self, descriptor: int, path: Path) -> None:
        # A duplicate of a descriptor is another number for the same file; the inode tells.
        self._open[os.fstat(descriptor).st_ino] = self._current[path]

    def _file(self, descriptor: int) -> File:
        return self._files[self._open[os.fstat(descriptor).st_ino]]

    def _pictured(self, site: str, answer: T) -> T:
        now = {number: file.now for number, file in self._files.items()}
        synced = {number: file.synced for number, file in self._files.items()}
        self.pictures.append(Picture(site, dict(self._durable), tuple(self._pending), now, synced, self.facts()))
        return answer


State = dict[Path, tuple[int, bytes]]
"""Each name with the file's number, equal for names of one file, and its bytes."""


def states_after_crash(picture: Picture) -> Iterator[State]:
    """Every directory that a power cut could leave at this moment, each once."""
    seen: set[tuple[tuple[Path, tuple[int, bytes]], ...]] = set()
    for chosen in product(*(_outcomes(change) for change in picture.pending)):
        names = dict(picture.names)
        for outcome in chosen:
            if outcome is not None:
                _apply(outcome, names)
        for survival in (_synced_only, _everything, _torn):
            state = {path: (number, survival(picture, number)) for path, number in names.items()}
            key = tuple(sorted(state.items()))
            if key not in seen:
                seen.add(key)
                yield state


def materialise(state: State, source_root: Path, target_root: Path) -> None:
    """Make the directory for real, below another root."""
    for name in ("consensus/archive", "consensus/events", "consensus/temp"):
        (target_root / name).mkdir(parents=True)
    made: dict[int, Path] = {}
    for path, (number, data) in state.items():
        target = target_root / path.relative_to(source_root)
        if number in made:
            target.hardlink_to(made[number])
        else:
            target.write_bytes(data)
            made[number] = target


def _outcomes(change: Change) -> list[Change | None]:
    if change.added is not None and change.removed is not None and len(change.directories) > 1:
        return [None, change, Change(change.directories, change.added, None, change.file)]
    return [None, change]


def _apply(change: Change, names: dict[Path, int]) -> None:
    if change.removed is not None:
        names.pop(change.removed, None)
    if change.added is not None:
        names[change.added] = change.file


def _synced_only(picture: Picture, number: int) -> bytes:
    return picture.synced[number]


def _everything(picture: Picture, number: int) -> bytes:
    return picture.now[number]


def _torn(picture: Picture, number: int) -> bytes:
    """The first half of what was changed since the last sync."""
    now, synced = picture.now[number], picture.synced[number]
    if now == synced or len(now) < len(synced):
        return now
    old = synced.ljust(len(now), b"\0")
    changed = [position for position, (a, b) in enumerate(zip(now, old, strict=True)) if a != b]
    if not changed:
        return now
    cut = changed[len(changed) // 2]
    return now[:cut] + old[cut:]
