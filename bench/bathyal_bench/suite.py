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

# Recalls at which systems are compared, as in most published comparisons.
TARGETS = (0.90, 0.95, 0.99)
# Relative difference of memory above which a comparison is flagged.
UNEQUAL_MEMORY = 0.10
# Queries measured one at a time: ten of them are above the 99th percentile.
LATENCY_QUERIES = 1000
# Queries before the measurement: the first ones start threads, rings and pools.
WARMING_QUERIES = 1000
# Least duration of a batch measurement: shorter batches are repeated, because timers and schedulers are
# coarse.
LEAST_SECONDS = 1.0
# Time limit of one build or one sweep, after which it counts as failed.
TIMEOUT_SECONDS = 3 * 3600.0


@dataclass(frozen=True)
class System:
    """A system and the options with which it is built, opened and searched."""

    name: str
    peer: str
    build: dict[str, Any] = field(default_factory=dict)
    """Options of the build, under the system's names."""
    open: dict[str, Any] = field(default_factory=dict)
    """Options of opening the index."""
    search: dict[str, Any] = field(default_factory=dict)
    """Search options that stay the same."""
    efforts: tuple[dict[str, Any], ...] = ()
    """Search options that vary, from the least effort to the highest."""
    data: tuple[str, ...] = ()
    """Names of the data sets that it is measured on; empty for all."""
    queries: int | None = None
    """Most queries per batch, for slow systems; None for the suite's number."""

    def index_key(self, data: str, data_bytes: int, metric: str, threads: int, version: str) -> str:
        """Returns the folder name of the built index: equal keys mean equal indexes."""
        parts = {"peer": self.peer, "build": self.build, "data": data, "bytes": data_bytes}
        parts |= {"metric": metric, "threads": threads, "version": version}
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return f"{self.peer}-{data}-{digest[:12]}"


@dataclass(frozen=True)
class Suite:
    """The complete description of a run."""

    name: str
    data: tuple[dict[str, Any], ...]
    systems: tuple[System, ...]
    k: tuple[int, ...] = (10,)
    """Neighbours per query; each number is measured."""
    threads: tuple[int, ...] = (2, 1)
    build_threads: int = 2
    repeats: int = 3
    caches: tuple[str, ...] = ("warm",)
    targets: tuple[float, ...] = TARGETS
    """Recalls at which systems are compared."""
    ratio_targets: tuple[float, ...] = ()
    """Overall ratios at which systems are compared."""
    references: tuple[str, ...] = ()
    """Systems that others are compared with: each with the one of the most similar memory."""
    memory_budgets: tuple[int, ...] = ()
    page_cache: int | None = None
    """Most bytes of an index in the page cache while a system is measured cold; None for no limit."""
    queries: int | None = None
    """Most queries per batch; None for all of the data set."""
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
            raise ValueError("targets and ratio_targets are empty; expected at least one target")
        if self.ratio_targets and min(self.ratio_targets) <= 1:
            raise ValueError("ratio_targets has a ratio of 1 or less; expected for example 1.05")

    def systems_for(self, data: str) -> list[System]:
        """Returns the systems that are measured on a data set."""
        return [system for system in self.systems if not system.data or data in system.data]


UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_bytes(text: str | int) -> int:
    """Parses ``"64MB"``, ``"1.5 GiB"`` or a whole number into bytes.

    >>> parse_bytes("64MB"), parse_bytes("1.5 GiB"), parse_bytes(4096)
    (64000000, 1610612736, 4096)
    """
    if isinstance(text, int):
        return text
    parts = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    if parts is None or parts[2].upper() not in UNITS:
        raise ValueError(f"{text!r} is not a size; expected for example 64MB or 1GiB")
    return int(float(parts[1]) * UNITS[parts[2].upper()])


def read_suite(path: Path) -> Suite:
    """Reads a suite from a TOML file.

    Raises:
        ValueError: a key is unknown or missing.
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
    """Returns the suite that parsed TOML describes."""
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
        raise ValueError(f"several systems have the same name: {', '.join(sorted(twice))}")
    suite = Suite(**{"name": name} | fields, data=tuple(content["data"]), systems=tuple(systems))
    for name in suite.references:
        if name not in names:
            raise ValueError(f"reference names {name!r}, but no system has this name")
    return replace(suite, memory_budgets=budgets)


def parse_system(entry: dict[str, Any], budgets: tuple[int, ...]) -> list[System]:
    """Returns the systems of a ``[[systems]]`` entry: one, or one per budget if the entry is ``budgeted``."""
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
        raise ValueError(f"system {system.name}: is budgeted, but the suite has no memory_budgets")
    named = [(f"{system.name}, {budget / 1e6:g} MB", budget) for budget in budgets]
    return [replace(system, name=name, open={**system.open, "memory": budget}) for name, budget in named]


def effort_name(entry: dict[str, Any]) -> str:
    """Returns the option that plain numbers in ``efforts`` are values of."""
    if "effort" not in entry:
        raise ValueError(
            f"system {entry['name']}: efforts are numbers; set effort to the option that they are values of"
        )
    return str(entry["effort"])


def refuse_unknown(where: str, entry: dict[str, Any], known: set[str]) -> None:
    """Refuses unknown keys: a misspelt key would otherwise be ignored silently."""
    unknown = sorted(set(entry) - known)
    if unknown:
        raise ValueError(f"{where}: unknown key {', '.join(unknown)}; known are {', '.join(sorted(known))}")
