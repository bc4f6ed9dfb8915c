"""Reports of reproductions, made from the records that ``bathyal-repro`` wrote.

Each paper has a module whose function ``report`` takes the line about the run and the measurements, and
returns a :class:`~bathyal_bench.repro.document.Document`.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from bathyal_bench.repro import records
from bathyal_bench.repro.document import Document

# Modules by the paper's name in the line about the run.
PAPERS = {
    "second-tier graph": "second_tier.graph",
    "second-tier cluster": "second_tier.cluster",
    "second-tier compare": "second_tier.compare",
    "e2lsh": "e2lsh",
    "cloud": "cloud",
    "d-hnsw": "d_hnsw",
    "gustann": "gustann",
}


def compose(path: Path) -> Document:
    """Makes the report of the records in the file ``path``.

    Raises ValueError, which names the file and the line, if they are not records of a known paper.
    """
    run, rows = records.read(path)
    if run["paper"] not in PAPERS:
        raise ValueError(f"{run.where}: unknown paper {run['paper']!r}; known are {', '.join(PAPERS)}")
    module = importlib.import_module(f"bathyal_bench.repro.{PAPERS[run['paper']]}")
    document: Document = module.report(run, rows)
    return document


def report(folder: Path) -> list[Path]:
    """Writes the report and the plots of FOLDER/records.jsonl into the folder; returns their paths."""
    return compose(folder / records.FILE_NAME).write(folder)
