"""The places of `check_advice.py`: how each is named to `advise`, and how an index there is searched.

Memory and disk are those of this machine. A memory node is a process of this machine that is reached by TCP, and a
bucket is a server of this machine whose answers are as slow as those of a store. CXL and RDMA memory are emulated
by the option `--delay` of searches.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Run = Callable[..., dict[str, Any]]

EMULATED: dict[str, dict[str, Any]] = {
    "cxl": {"kind": "mapped", "latency_ns": 300, "bandwidth_bytes_per_s": 32e9, "issue_ns": 0},
    "rdma": {"kind": "remote", "latency_ns": 2_800, "bandwidth_bytes_per_s": 25e9, "issue_ns": 150},
}
"""Profiles of the devices that `--delay` emulates (docs/emulated-devices.md), but for what they share."""
LINE_BYTES = 64
SHAPED = "s3"
"""The store as which a bucket is emulated."""
NODE_BYTES = "4GB"


@dataclass(frozen=True)
class Place:
    """A place in which indexes are predicted and measured."""

    name: str
    on: str
    """The value of `--on`."""
    search: tuple[str, ...] = ()
    """Further words of a search."""
    store: tuple[str, ...] = ()
    """Options of the store, for `advise`, searches and copies."""
    is_emulated: bool = False
    """True if pages that are predicted in other memory are in the machine's own, so that memory is not compared."""
    copies: str = ""
    """The address to which an index is copied before it is searched; empty for searches of the built one."""

    def index(self, command: Run, built: pathlib.Path) -> pathlib.Path | str:
        """Returns the index to search: `built`, or its copy at this place."""
        if not self.copies:
            return built
        command("copy", built, self.copies, "--overwrite", *self.store)
        return self.copies


@contextlib.contextmanager
def opened(
    names: list[str], command: Run, program: str, folder: pathlib.Path, some: pathlib.Path
) -> Iterator[list[Place]]:
    """Yields the places with these names; `some` is an index by which nodes and buckets are measured."""
    with contextlib.ExitStack() as stack:
        places = []
        for name in names:
            match name:
                case "dram" | "mapped":
                    places.append(Place(name, name, ("--tier", name)))
                case "file":
                    profile = folder / "disk.json"
                    command("probe", folder, "--output", profile)
                    places.append(Place(name, str(profile), ("--profile", str(profile))))
                case "cxl" | "rdma":
                    profile = folder / f"{name}.json"
                    profile.write_text(json.dumps(emulated_profile(name)))
                    places.append(Place(name, str(profile), ("--tier", "dram", "--delay", name), (), True))
                case "node":
                    places.append(stack.enter_context(node(command, program, folder, some)))
                case "bucket":
                    places.append(stack.enter_context(bucket(command, folder, some)))
                case _:
                    raise SystemExit(
                        f"unknown place {name}; known are dram, file, mapped, cxl, rdma, node, bucket"
                    )
        yield places


def emulated_profile(name: str) -> dict[str, Any]:
    """Returns the profile of an emulated device, whose reads are limited by its link alone."""
    device = EMULATED[name]
    return {
        "method": "emulated",
        "granularity": LINE_BYTES,
        "alignment": 1,
        "addressable": device["kind"] == "mapped",
        "iops": device["bandwidth_bytes_per_s"] / LINE_BYTES,
        "depth": 64,
        **device,
    }


@contextlib.contextmanager
def node(command: Run, program: str, folder: pathlib.Path, some: pathlib.Path) -> Iterator[Place]:
    """Starts a memory node of this machine."""
    keys = folder / "node-keys"
    words = [program, "memory-node", "--capacity", NODE_BYTES, "--listen", "127.0.0.1:0", "--keys", str(keys)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            address = ""
            for line in process.stdout or ():
                if found := re.search(r"127\.0\.0\.1:\d+", line):
                    address = found[0]
                    break
            files = sorted(keys.glob("*.json"))
            store = ("--store-option", f"keys={files[0]}", "--store-option", "transport=tcp")
            command("copy", some, f"remote://{address}/some", "--overwrite", *store)
            yield Place("node", f"remote://{address}/some", (), store, copies=f"remote://{address}/index")
        finally:
            process.terminate()


@contextlib.contextmanager
def bucket(command: Run, folder: pathlib.Path, some: pathlib.Path) -> Iterator[Place]:
    """Starts a bucket of this machine. Needs `bench` on the path of modules."""
    from bathyal_bench.cloud.servers import server

    with server(folder / "store") as running:
        given = {**running.as_bathyal_options(), "emulate": SHAPED}
        store = tuple(word for name, value in given.items() for word in ("--store-option", f"{name}={value}"))
        address = f"s3://{running.bucket}"
        command("copy", some, f"{address}/some", "--overwrite", *store)
        yield Place("bucket", f"{address}/some", (), store, copies=f"{address}/index")
