"""Where a node is in its work on the disk, seen from outside, also after it was killed.

The page is a small file that both processes map. Each thread of the node that writes has a slot in it: the number of
the site it is in, or 0. The other process can *arm* a site: the node stops dead when it comes to it, and waits to be
killed.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.storage.disk import Disk

SLOTS: Final = 8
SITES_MAX: Final = 100
_NAME_BYTES: Final = 32
_U32: Final = struct.Struct("<I")
_SLOTS_AT: Final = 0
_HELD_AT: Final = SLOTS * 4
_ARMED_AT: Final = _HELD_AT + 4
_SKIP_AT: Final = _ARMED_AT + _NAME_BYTES
_COUNT_AT: Final = _SKIP_AT + 4
_NAMES_AT: Final = _COUNT_AT + 4
PAGE_BYTES: Final = _NAMES_AT + SITES_MAX * _NAME_BYTES


class SitePage:
    """The shared page."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), PAGE_BYTES)

    @staticmethod
    def create(path: Path) -> SitePage:
        """Make the file, all zeros, and map it."""
        path.write_bytes(bytes(PAGE_BYTES))
        return SitePage(path)

    def close(self) -> None:
        """Unmap it."""
        self._map.close()

    # The killer's side.

    def arm(self, site: str, skip: int = 0) -> None:
        """Have the node stop when it comes to this site for the time after the first `skip`."""
        self._put(_SKIP_AT, skip)
        self._map[_ARMED_AT : _ARMED_AT + _NAME_BYTES] = site.encode().ljust(_NAME_BYTES, b"\0")

    @property
    def held(self) -> bool:
        """Whether the node has stopped at the armed site."""
        return self._get(_HELD_AT) != 0

    def where(self) -> list[str]:
        """The sites that the node's threads are in."""
        numbers = [self._get(_SLOTS_AT + 4 * slot) for slot in range(SLOTS)]
        return [self._name(number) for number in numbers if number]

    def sites(self) -> list[str]:
        """Every site that the node has been at."""
        return [self._name(number) for number in range(1, self._get(_COUNT_AT) + 1)]

    # The node's side.

    def enter(self, slot: int, number: int) -> None:
        """A thread comes to a site."""
        self._put(_SLOTS_AT + 4 * slot, number)

    def leave(self, slot: int) -> None:
        """A thread is through with it."""
        self._put(_SLOTS_AT + 4 * slot, 0)

    def number(self, site: str) -> int:
        """The number of a site that was not met before; its name is there before the number is used."""
        number = self._get(_COUNT_AT) + 1
        assert number <= SITES_MAX, "there are more sites than the page has room for"
        offset = _NAMES_AT + (number - 1) * _NAME_BYTES
        self._map[offset : offset + _NAME_BYTES] = site.encode().ljust(_NAME_BYTES, b"\0")
        self._put(_COUNT_AT, number)
        return number

    def stop_if_armed(self, site: str) -> None:
        """Wait here to be killed, if that is wanted."""
        if self._armed() != site:
            return
        skip = self._get(_SKIP_AT)
        if skip:
            self._put(_SKIP_AT, skip - 1)
            return
        self._put(_HELD_AT, 1)
        while True:
            time.sleep(1)

    def _armed(self) -> str:
        return self._text(_ARMED_AT)

    def _name(self, number: int) -> str:
        return self._text(_NAMES_AT + (number - 1) * _NAME_BYTES)

    def _text(self, offset: int) -> str:
        return self._map[offset : offset + _NAME_BYTES].rstrip(b"\0").decode()

    def _get(self, offset: int) -> int:
        value: int = _U32.unpack_from(self._map, offset)[0]
        return value

    def _put(self, offset: int, value: int) -> None:
        _U32.pack_into(self._map, offset, value)


class Fault(msgspec.Struct):
    """What a test wants to go wrong."""

    site: str
    after: int
    """How often the site works before."""
    errno: int = 0
    """What it fails with then; 0 for a disk that lies: it says that it wrote, and wrote nothing."""


class WatchedDisk(Disk):
    """A disk that says in the page where it is; and that fails at one site, where a test wants it."""

    def __init__(self, page: SitePage | None, fault: Fault | None = None) -> None:
        super().__init__()
        self._page = page
        self._fault = fault
        self._numbers: dict[str, int] = {}
        self._slots: dict[int, int] = {}
        self._lock = threading.Lock()

    def before(self, site: str, path: Path) -> None:
        """Say where we are."""
        if self._fault is not None and self._fault.errno and self.is_faulty(site):
            raise OSError(self._fault.errno, "as the test wants it")
        page = self._page
        if page is not None:
            number = self._numbers.get(site)
            if number is None:
                with self._lock:
                    number = self._numbers[site] = page.number(site)
            page.enter(self._slot(), number)
            page.stop_if_armed(site)

    def is_faulty(self, site: str) -> bool:
        """Whether this call is to go wrong."""
        fault = self._fault
        if fault is None or fault.site != site:
            return False
        fault.after -= 1
        return fault.after < 0

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, offset: int, site: str, path: Path) -> None:
        """Write, or only say so."""
        if self._fault is not None and not self._fault.errno and self.is_faulty(site):
            return
        super().pwrite(descriptor, data, offset, site, path)

    def _slot(self) -> int:
        """This thread's slot; threads that come later than there are slots share the last."""
        thread = threading.get_ident()
        slot = self._slots.get(thread)
        if slot is None:
            with self._lock:
                slot = self._slots[thread] = min(len(self._slots), SLOTS - 1)
        return slot


def _watched(name: str) -> Any:
    original = getattr(WatchedDisk, name)

    def method(self: WatchedDisk, *arguments: Any) -> Any:
        try:
            return original(self, *arguments)
        finally:
            if self._page is not None:
                self._page.leave(self._slot())

    method.__name__ = name
    method.__doc__ = original.__doc__
    return method


CALLS: Final = (
    "create open pwrite fdatasync fsync_directory allocate truncate rename link unlink mkdir check_writable".split()
)
for _name in CALLS:
    setattr(WatchedDisk, _name, _watched(_name))
