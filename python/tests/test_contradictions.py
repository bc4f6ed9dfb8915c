"""Searches that no index accepts are refused with one sentence: the same as in Rust
(``crates/index/src/open/request.rs``) and by the command (``crates/cli/tests/command/contradictions.rs``)."""

from __future__ import annotations

import asyncio
import pathlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bathyal

EFFORTS: list[tuple[dict[str, Any], str]] = [
    ({"recall": 0.9, "search_list": 50}, "recall is 0.9 and search_list is 50; give one of them"),
    ({"recall": 0.9, "ratio": 1.1}, "recall is 0.9 and ratio is 1.1; give one of them"),
    ({"search_list": 50, "ratio": 1.1}, "search_list is 50 and ratio is 1.1; give one of them"),
    (
        {"recall": 0.9, "search_list": 50, "ratio": 1.1},
        "recall is 0.9 and search_list is 50 and ratio is 1.1; give one of them",
    ),
]
PROMISES: list[tuple[dict[str, Any], str]] = [
    ({"ratio": 1.1, "probability": 0.5}, "ratio is 1.1 and probability is 0.5; give one of them"),
    ({"within": 2.0}, "within is 2, but there is no probability; give both"),
    ({"probability": 1.0}, "probability is 1; it must be above 0 and below 1, for example 0.9"),
    ({"probability": 0.5, "within": 1.0}, "within is 1; it must be above 1, for example 4"),
    ({"probability": 0.5, "probes": 3}, "probes is 3 and probability is 0.5; give one of them"),
]
RANGES: list[tuple[dict[str, Any], str]] = [
    ({"k": 0}, "k is 0; ask for at least one neighbour"),
    ({"recall": 1.5}, "recall is 1.5; it must be above 0 and at most 1"),
    ({"ratio": 0.5}, "ratio is 0.5; it must be at least 1, for example 1.05"),
    ({"search_list": 0}, "search_list is 0; it must be at least k"),
    ({"search_list": 2097152}, "search_list is 2097152; it must be at most 1048576"),
    ({"probes": 0}, "probes is 0; at least one group must be scanned"),
    ({"prune": -0.5}, "prune is -0.5; it must be 0 or above"),
    ({"beam_width": 0}, "beam_width is 0; it must be between 1 and 128"),
    ({"beam_width": 129}, "beam_width is 129; it must be between 1 and 128"),
    ({"multi_probe": 65}, "multi_probe is 65; it must be at most 64"),
    ({"in_flight": 0}, "in_flight is 0; at least one query must run on each thread"),
]


def refuses(search: Callable[..., Any], arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        search(**arguments)


def test_every_search_of_an_index_refuses_contradictions(tmp_path: pathlib.Path) -> None:
    rows = np.random.default_rng(1).standard_normal((300, 8), dtype=np.float32)
    bathyal.write_vectors(tmp_path / "queries.fbin", rows[:3])
    with bathyal.build(rows, tmp_path / "index", metric="l2") as index:
        for arguments, sentence in EFFORTS + PROMISES + RANGES:
            refuses(lambda **given: index.search(rows[:3], **given), arguments, sentence)
            refuses(lambda **given: index.search(rows[:0], **given), arguments, sentence)
            refuses(lambda **given: bathyal.search([index], rows[:3], **given), arguments, sentence)
            refuses(lambda **given: asyncio.run(index.search_async(rows[0], **given)), arguments, sentence)
        files = (tmp_path / "queries.fbin", tmp_path / "found.ibin")
        for arguments, sentence in EFFORTS:
            refuses(lambda **given: index.explain(rows[0], **given), arguments, sentence)
            refuses(lambda **given: index.search_file(*files, **given), arguments, sentence)
        refuses(lambda **given: index.range_search(rows[:3], 1.0, **given), {"in_flight": 0}, RANGES[-1][1])


def test_a_search_of_a_collection_refuses_the_same_contradictions(tmp_path: pathlib.Path) -> None:
    rows = np.random.default_rng(1).standard_normal((50, 8), dtype=np.float32)
    with bathyal.Collection.create(tmp_path / "rows", dim=8, id="u64") as docs:
        docs.add(range(50), rows)
        for arguments, sentence in [EFFORTS[0], *RANGES[:2], *RANGES[3:5]]:
            refuses(lambda **given: docs.search(rows[:3], **given), arguments, sentence)
            refuses(lambda **given: bathyal.search_many([docs], rows[:3], **given), arguments, sentence)
