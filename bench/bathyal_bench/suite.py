"""A suite file: which systems are measured on which data, and how."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

# Recalls at which systems are compared: of most published comparisons.
TARGETS = (0.90, 0.95, 0.99)
# A comparison over memory that differs by more than this share is flagged.
UNEQUAL_MEMORY = 0.10
# Queries measured one at a time: the 99th percentile of them is still made of ten.
LATENCY_QUERIES = 1000
# Queries before the clock starts: threads, rings and pools come into being at the first ones.
WARMING_QUERIES = 1000
# A batch that is answered sooner is answered again until this has passed, since timers and schedulers are coarse.
LEAST_SECONDS = 1.0
# The longest that one build or one sweep may take before it counts as failed.
TIMEOUT_SECONDS = 3 * 3600.0


@dataclass(frozen=True)
class System:
    """A system as it is built, opened and searched."""

    name: str
    peer: str
    build: dict[str, Any] = field(default_factory=dict)
    """Options of the build, named as the system names them."""
    open: dict[str, Any] = field(default_factory=dict)
    """Options of opening."""
    search: dict[str, Any] = field(default_factory=dict)
    """Options of a search that stay the same."""
    efforts: tuple[dict[str, Any], ...] = ()
    """Options of a search that change, from the least effort to the most."""
    data: tuple[str, ...] = ()
    """Names of the sets that it is measured on; all if empty."""
    queries: int | None = None
    """Most queries of a batch, for systems that are slow; None takes the suite's."""

    def index_key(self, data: str, data_bytes: int, metric: str, threads: int, version: str) -> str:
        """Names the folder of the built index: the same key is the same index."""
        parts = {"peer": self.peer, "build": self.build, "data": data, "bytes": data_bytes}
        parts |= {"metric": metric, "threads": threads, "version": version}
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return f"{self.peer}-{data}-{digest[:12]}"


@dataclass(frozen=True)
class Suite:
    """Everything that a run does."""

    name: str
    data: tuple[dict[str, Any], ...]
    systems: tuple[System, ...]
    k: tuple[int, ...] = (10,)
    """Neighbours a query; all is measured for each."""
    threads: tuple[int, ...] = (2, 1)
    build_threads: int = 2
    repeats: int = 3
    caches: tuple[str, ...] = ("warm",)
    targets: tuple[float, ...] = TARGETS
    """Recalls at which systems are compared."""
    ratio_targets: tuple[float, ...] = ()
    """Overall ratios at which they are."""
    references: tuple[str, ...] = ()
    """What others are compared with: each with the one whose memory is nearest to its own."""
    memory_budgets: tuple[int, ...] = ()
    page_cache: int | None = None
    """Bytes of an index that the kernel may hold for a system that is measured cold; None is no limit."""
    queries: int | None = None
    """Most queries of a batch; None takes all of the set."""
    pin: bool = True
    latency_queries: int = LATENCY_QUERIES
    warming_queries: int = WARMING_QUERIES
    least_seconds: float = LEAST_SECONDS
    timeout_seconds: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        for cache in self.caches:
            if cache not in ("warm", "cold"):
                raise ValueError(f"caches names {cache!r}; expected warm or cold")
        for name, numbers in (("k", self.k), ("threads", self.threads), ("repeats", (self.repeats,))):
            if not numbers or min(numbers) < 1:
                raise ValueError(f"{name} is {', '.join(map(str, numbers))}; expected 1 or more")
        if not self.targets and not self.ratio_targets:
            raise ValueError("targets and ratio_targets are empty; expected something to compare at")
        if self.ratio_targets and min(self.ratio_targets) <= 1:
            raise ValueError("ratio_targets holds a ratio of 1 or less; expected for example 1.05")

    def systems_for(self, data: str) -> list[System]:
        """The systems that are measured on a set."""
        return [system for system in self.systems if not system.data or data in system.data]


UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_bytes(text: str | int) -> int:
    """Bytes of ``"64MB"``, ``"1.5 GiB"`` or a whole number.

    >>> parse_bytes("64MB"), parse_bytes("1.5 GiB"), parse_bytes(4096)
    (64000000, 1610612736, 4096)
    """
    if isinstance(text, int):
        return text
    parts = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    if parts is None or parts[2].upper() not in UNITS:
        raise ValueError(f"{text!r} is no size; expected for example 64MB or 1GiB")
    return int(float(parts[1]) * UNITS[parts[2].upper()])


def read_suite(path: Path) -> Suite:
    """The suite in a TOML file.

    Raises:
        ValueError: a key that is not known, or one that is missing.
    """
    with open(path, "rb") as file:
        return parse_suite(tomllib.load(file), path.stem)


PLAIN = (
    "name",
    "build_threads",
    "repeats",
    "pin",
    "queries",
    "latency_queries",
    "warming_queries",
    "least_seconds",
    "timeout_seconds",
)

SEVERAL = ("threads", "caches", "targets", "ratio_targets")


def parse_suite(content: dict[str, Any], name: str = "suite") -> Suite:
    """The suite that parsed TOML describes."""
    known = {*PLAIN, *SEVERAL, "k", "reference", "memory_budgets", "page_cache", "data", "systems"}
    refuse_unknown("the suite", content, known)
    for needed in ("data", "systems"):
        if not content.get(needed):
            raise ValueError(f"the suite has no [[{needed}]]")
    fields: dict[str, Any] = {key: content[key] for key in PLAIN if key in content}
    fields |= {key: tuple(content[key]) for key in SEVERAL if key in content}
    if "k" in content:
        fields["k"] = (content["k"],) if isinstance(content["k"], int) else tuple(content["k"])
    if "page_cache" in content:
        fields["page_cache"] = parse_bytes(content["page_cache"])
    reference = content.get("reference", ())
    fields["references"] = (reference,) if isinstance(reference, str) else tuple(reference)
    budgets = tuple(sorted(parse_bytes(text) for text in content.get("memory_budgets", ())))
    data_keys = {"name", "metric", "base", "queries", "groundtruth", "rows", "generated"}
    data_keys |= {"concatenated", "projected"}
    for entry in content["data"]:
        refuse_unknown(f"data {entry.get('name')}", entry, data_keys)
    systems = [one for entry in content["systems"] for one in parse_system(entry, budgets)]
    names = [system.name for system in systems]
    twice = {one for one in names if names.count(one) > 1}
    if twice:
        raise ValueError(f"systems with one name: {', '.join(sorted(twice))}")
    suite = Suite(**{"name": name} | fields, data=tuple(content["data"]), systems=tuple(systems))
    for name in suite.references:
        if name not in names:
            raise ValueError(f"reference names {name!r}, which no system is called")
    return replace(suite, memory_budgets=budgets)


def parse_system(entry: dict[str, Any], budgets: tuple[int, ...]) -> list[System]:
    """The systems of one ``[[systems]]`` entry: one, or one for each budget if it says ``budgeted``."""
    known = {"name", "peer", "build", "open", "search", "effort", "efforts", "data", "queries", "budgeted"}
    refuse_unknown(f"system {entry.get('name')}", entry, known)
    for needed in ("name", "peer", "efforts"):
        if not entry.get(needed):
            raise ValueError(f"system {entry.get('name')}: has no {needed}")
    plain = {
        key: entry[key] for key in ("name", "peer", "build", "open", "search", "queries") if key in entry
    }
    efforts = tuple(one if isinstance(one, dict) else {effort_name(entry): one} for one in entry["efforts"])
    system = System(**plain, efforts=efforts, data=tuple(entry.get("data", ())))
    if not entry.get("budgeted"):
        return [system]
    if not budgets:
        raise ValueError(f"system {system.name}: is budgeted, and the suite has no memory_budgets")
    named = [(f"{system.name}, {budget / 1e6:g} MB", budget) for budget in budgets]
    return [replace(system, name=name, open={**system.open, "memory": budget}) for name, budget in named]


def effort_name(entry: dict[str, Any]) -> str:
    """The option that plain numbers in ``efforts`` stand for."""
    if "effort" not in entry:
        raise ValueError(
            f"system {entry['name']}: efforts are numbers, and no effort says which option they are"
        )
    return str(entry["effort"])


def refuse_unknown(where: str, entry: dict[str, Any], known: set[str]) -> None:
    """A key that is misspelt would otherwise change nothing in silence."""
    unknown = sorted(set(entry) - known)
    if unknown:
        raise ValueError(f"{where}: {', '.join(unknown)} is not known; known are {', '.join(sorted(known))}")
