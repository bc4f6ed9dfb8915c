"""The systems that can be measured, by the names in suites. bench/README.md explains how to add one."""

from __future__ import annotations

import importlib

from bathyal_bench.peers.peer import Peer

# Module and class are imported on use, so that no process loads two systems.
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
    """Returns the adapter of that name.

    Raises:
        ValueError: no adapter has this name.
    """
    if name not in PEERS:
        raise ValueError(f"{name!r} is not a peer; known are {', '.join(PEERS)}")
    module, kind = PEERS[name]
    found: type[Peer] = getattr(importlib.import_module(f"bathyal_bench.peers.{module}"), kind)
    return found
