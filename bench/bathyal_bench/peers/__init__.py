"""The systems that can be measured, by the names that suites use. See bench/README.md on adding one."""

from __future__ import annotations

import importlib

from bathyal_bench.peers.peer import Peer

# Module and class are imported when one is measured, so that no process holds two systems.
PEERS = {
    "bathyal": ("bathyal", "Bathyal"),
    "diskann": ("diskann", "DiskAnn"),
    "faiss": ("faiss", "Faiss"),
    "faiss-on-disk": ("faiss", "FaissOnDisk"),
    "hnswlib": ("hnswlib", "Hnswlib"),
    "usearch": ("usearch", "Usearch"),
    "scalable-vs": ("scalable_vs", "ScalableVs"),
    "scann": ("scann", "Scann"),
    "lancedb": ("lancedb", "LanceDb"),
    "pyvsag": ("pyvsag", "Pyvsag"),
    "symphonyqg": ("rabitqlib", "SymphonyQg"),
    "ivf-rabitq": ("rabitqlib", "IvfRabitq"),
    "falconn": ("falconn", "Falconn"),
    "srs": ("srs", "Srs"),
    "qalsh": ("qalsh", "Qalsh"),
    "external": ("external", "External"),
}


def peer_class(name: str) -> type[Peer]:
    """The adapter of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in PEERS:
        raise ValueError(f"{name!r} is no peer; there are {', '.join(PEERS)}")
    module, kind = PEERS[name]
    found: type[Peer] = getattr(importlib.import_module(f"bathyal_bench.peers.{module}"), kind)
    return found
