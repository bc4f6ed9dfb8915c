"""What the kernel knows about this process and about files: memory, reads, what is cached."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
from collections.abc import Iterable
from pathlib import Path

PAGE_BYTES = mmap.PAGESIZE
# How much of a file is read at once to bring it into the page cache.
CHUNK_BYTES = 1 << 22


def memory_bytes(field: str) -> int:
    """A line of /proc/self/status: ``VmRSS`` (now), ``VmHWM`` (the most so far)."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise KeyError(field)


def reset_peak() -> None:
    """Lets ``VmHWM`` start again from the memory that the process holds now."""
    # Freed memory that the allocator keeps would be reused and hide what comes next.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def read_counters() -> dict[str, int]:
    """Bytes that came from the device for this process, its read calls, and its page faults that had to wait."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    io = {name: int(value) for name, value in (line.split(": ") for line in lines)}
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    return {"read_bytes": io["read_bytes"], "read_calls": io["syscr"], "major_faults": faults}


def files_below(folder: Path) -> list[Path]:
    """All plain files in a folder and in those below it."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def folder_bytes(folder: Path) -> int:
    """Bytes of all files in a folder and in those below it."""
    return sum(path.stat().st_size for path in files_below(folder))


def forget(paths: Iterable[Path]) -> None:
    """Asks the kernel to drop the pages of these files from its cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def remember(paths: Iterable[Path]) -> None:
    """Reads these files once, so that as much of them as fits is in the kernel's cache."""
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(CHUNK_BYTES):
                pass


def cached_bytes(paths: Iterable[Path]) -> int:
    """Bytes of these files that the kernel holds in its cache now."""
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    total = 0
    for path in paths:
        size = path.stat().st_size
        if size == 0:
            continue
        with open(path, "rb") as file, mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as mapped:
            pages = ctypes.create_string_buffer(-(-size // PAGE_BYTES))
            start = ctypes.c_char.from_buffer(mapped)
            if mincore(ctypes.addressof(start), size, pages) == 0:
                total += sum(byte & 1 for byte in pages.raw) * PAGE_BYTES
            del start
    return total


def limit_processors(count: int) -> None:
    """Keeps this process and its children on ``count`` of the processors that it may use."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[:count])
