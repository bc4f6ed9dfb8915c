"""What the kernel knows about this process, or about one that it started: memory and reads."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

PAGE_BYTES = resource.getpagesize()


def memory_bytes(field: str, process: int | str = "self") -> int:
    """A line of /proc/PROCESS/status: ``VmRSS`` (now), ``VmHWM`` (the most so far)."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
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


def limit_processors(count: int) -> None:
    """Keeps this process and its children on ``count`` of the processors that it may use."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[:count])
