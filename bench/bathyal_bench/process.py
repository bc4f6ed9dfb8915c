"""Memory and reads of this process, or of one that it started, as counted by the kernel."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

PAGE_BYTES = resource.getpagesize()


def memory_bytes(field: str, process: int | str = "self") -> int:
    """Returns a field of /proc/PROCESS/status: ``VmRSS`` (now) or ``VmHWM`` (the peak)."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise KeyError(field)


def reset_peak() -> None:
    """Resets ``VmHWM`` to the current resident memory."""
    # Return freed memory first: reusing it would hide later growth.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def read_counters() -> dict[str, int]:
    """Returns bytes read from the device for this process, its read calls, and its page faults that
    waited.
    """
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    io = {name: int(value) for name, value in (line.split(": ") for line in lines)}
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    return {"read_bytes": io["read_bytes"], "read_calls": io["syscr"], "major_faults": faults}


def files_below(folder: Path) -> list[Path]:
    """Returns all plain files in a folder and its subfolders."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def folder_bytes(folder: Path) -> int:
    """Returns the bytes of all files in a folder and its subfolders."""
    return sum(path.stat().st_size for path in files_below(folder))


def limit_processors(count: int) -> None:
    """Restricts this process and its children to ``count`` of its allowed processors."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[:count])
