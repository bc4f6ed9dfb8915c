"""The kernel's page cache of an index's files: its size, and a limit for it while a cold index is measured.

A batch of queries reads a set of some hundred megabytes into the page cache within seconds; later queries
find it warm. To keep an index cold, and to compare at equal memory, cached bytes beyond a limit are dropped
between queries, outside of the measured time.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from bathyal_bench.process import PAGE_BYTES

# Bytes per read when a file is read into the page cache.
CHUNK_BYTES = 1 << 22
# Unit of dropping: the kernel may cache folios of this size, and does not drop parts of one.
EXTENT_BYTES = 1 << 20
# Linux's number of the advice that reclaims mapped pages at once; Python has no name for it.
MADV_PAGEOUT = 21
SEED = 1


def forget(paths: Iterable[Path]) -> None:
    """Asks the kernel to drop the pages of these files from its cache, including pages that this process
    maps.
    """
    files = list(paths)
    for _, _, address, length in mappings(files):
        give_back(address, length)
    for path in files:
        drop(path)


def remember(paths: Iterable[Path]) -> None:
    """Reads these files once, so that the kernel caches as much of them as fits."""
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(CHUNK_BYTES):
                pass


def cached_bytes(paths: Iterable[Path]) -> int:
    """Returns the bytes of these files in the page cache."""
    return sum(held_in(cached_pages(path)) for path in paths)


def cached_pages(path: Path) -> bytes:
    """Returns a byte for each page of a file, odd if the page is cached."""
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    size = path.stat().st_size
    if size == 0:
        return b""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as mapped:
        pages = ctypes.create_string_buffer(-(-size // PAGE_BYTES))
        start = ctypes.c_char.from_buffer(mapped)
        succeeded = mincore(ctypes.addressof(start), size, pages) == 0
        del start
        return pages.raw if succeeded else b""


def held_in(pages: bytes) -> int:
    """Returns the bytes of the cached pages; only the lowest bit of each byte has a meaning."""
    return sum(pages.count(value) for value in range(1, 256, 2)) * PAGE_BYTES


def mapped_bytes(paths: Iterable[Path]) -> int:
    """Returns the bytes of these files that are mapped and resident here; the process's own memory includes
    them.
    """
    names = {str(path.resolve()) for path in paths}
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024 if inside else 0
        elif "-" in line.split(" ", 1)[0]:
            inside = mapped_name(line) in names
    return total


def mapped_name(line: str) -> str:
    """Returns the file of a line of /proc/self/maps; empty for memory without one."""
    parts = line.split(maxsplit=5)
    return parts[5] if len(parts) == 6 else ""


def mappings(paths: Iterable[Path]) -> Iterator[tuple[Path, int, int, int]]:
    """Yields where this process maps these files: path, start in the file, address, length."""
    names = {str(path.resolve()): path for path in paths}
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        name = mapped_name(line)
        if name in names:
            addresses, _, offset = line.split(maxsplit=3)[:3]
            first, last = (int(text, 16) for text in addresses.split("-"))
            yield names[name], int(offset, 16), first, last - first


def give_back(address: int, length: int) -> None:
    """Lets the kernel reclaim mapped pages; a later access reads them again."""
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    madvise(address, length, MADV_PAGEOUT)


def expect_random(paths: Iterable[Path]) -> None:
    """Turns off read-ahead for the parts of these files that this process maps."""
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for _, _, address, length in mappings(paths):
        madvise(address, length, mmap.MADV_RANDOM)


def drop(path: Path, start: int = 0, length: int = 0) -> None:
    """Drops the unmapped pages of a part of a file; a length of 0 means up to the end."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


class PageCache:
    """Keeps the page cache of an index's files near a limit."""

    def __init__(self, files: list[Path], limit: int | None) -> None:
        self.files = files
        self.limit = limit
        self.most = 0
        """Most cached bytes seen, without those that the process maps."""
        self.random = random.Random(SEED)

    def settle(self) -> float:
        """Measures the cache and drops bytes beyond the limit, at random because the order of use is unknown.

        Returns the excess as a share of the limit.
        """
        held = cached_bytes(self.files)
        self.most = max(self.most, held - mapped_bytes(self.files))
        if self.limit is None or held <= self.limit:
            return 0.0
        excess = held / max(self.limit, 1) - 1
        extents = self.held_extents()
        self.random.shuffle(extents)
        mapped = list(mappings(self.files))
        while held > self.limit and extents:
            beyond = held - self.limit
            while beyond > 0 and extents:
                path, start, length = extents.pop()
                drop_extent(path, start, mapped)
                beyond -= length
            held = cached_bytes(self.files)
        return excess

    def held_extents(self) -> list[tuple[Path, int, int]]:
        """Returns path, start and cached bytes of each extent with cached bytes."""
        found = []
        for path in self.files:
            pages = cached_pages(path)
            for start in range(0, len(pages) * PAGE_BYTES, EXTENT_BYTES):
                length = held_in(pages[start // PAGE_BYTES : (start + EXTENT_BYTES) // PAGE_BYTES])
                if length:
                    found.append((path, start, length))
        return found


def drop_extent(path: Path, start: int, mapped: list[tuple[Path, int, int, int]]) -> None:
    """Drops an extent, including its mapped pages."""
    for name, file_start, address, length in mapped:
        first = max(start, file_start)
        last = min(start + EXTENT_BYTES, file_start + length)
        if name == path and first < last:
            give_back(address + first - file_start, last - first)
    drop(path, start, EXTENT_BYTES)
