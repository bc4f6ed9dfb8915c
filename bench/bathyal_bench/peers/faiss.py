"""faiss, by its index factory. ``build``: factory, and any construction parameter; ``search``: any parameter.

For example ``factory = "HNSW32,Flat"`` with ``efConstruction`` and ``efSearch``, or
``"IVF1024,PQ64x4fs,RFlat"`` (fast scan and re-ranking) with ``nprobe`` and ``k_factor_rf``; in place of the
latter, ``candidates`` is the number of re-ranked vectors, independent of k. The peer ``faiss-on-disk`` has
its inverted lists in a file of their own, which is mapped. ``open``: ``mapped = true`` maps flat vectors,
such as those for re-ranking, and reads the rest; ``read_ahead = false`` turns off the kernel's read-ahead for
mapped lists. ``build.by_residual = false`` is for codes that are the vectors themselves (``SQ8_direct``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bathyal_bench.page_cache import expect_random
from bathyal_bench.peers.peer import Options, Peer

FILE = "index.faiss"
LISTS = "lists.ivfdata"


class Faiss(Peer):
    """Any index that the factory makes, in memory."""

    requirement = "faiss-cpu"
    candidates: float | None = None
    refined_k: int | None = None
    metrics = ("l2", "ip")

    def load_library(self) -> None:
        import faiss

        self.package = faiss
        faiss.omp_set_num_threads(self.threads)

    def build(self, index: Path, options: Options) -> Options:
        made = self.make(options)
        self.package.write_index(made, str(index / FILE))
        return {}

    def make(self, options: Options) -> Any:
        """Builds the index with all vectors."""
        faiss = self.package
        own = ("factory", "by_residual")
        rest = {name: value for name, value in options.items() if name not in own}
        metric = faiss.METRIC_INNER_PRODUCT if self.data.metric == "ip" else faiss.METRIC_L2
        made = faiss.index_factory(self.data.dim, options["factory"], metric)
        self.set_parameters(made, rest)
        if "by_residual" in options:
            faiss.extract_index_ivf(made).by_residual = options["by_residual"]
        vectors = self.vectors()
        made.train(vectors)
        made.add(vectors)
        return made

    def set_parameters(self, index: Any, options: Options) -> None:
        """Sets each parameter by its name, in whichever nested index has it."""
        space = self.package.ParameterSpace()
        for name, value in options.items():
            space.set_index_parameter(index, name, value)

    def open(self, index: Path, options: Options) -> None:
        if options.get("mapped"):
            self.cached_by_kernel, self.note = True, "vectors are mapped, codes in memory"
            self.index = self.package.read_index(str(index / FILE), self.package.IO_FLAG_MMAP_IFC)
        else:
            self.index = self.package.read_index(str(index / FILE))

    def set_effort(self, options: Options) -> None:
        self.candidates, self.refined_k = options.get("candidates"), None
        self.set_parameters(
            self.index, {name: value for name, value in options.items() if name != "candidates"}
        )

    def refine_for(self, k: int) -> None:
        """Sets the number of candidates to re-rank, which faiss takes as a multiple of k."""
        if self.candidates is not None and self.refined_k != k:
            self.set_parameters(self.index, {"k_factor_rf": max(1, self.candidates / k)})
            self.refined_k = k

    def search(self, queries: NDArray[Any], k: int) -> NDArray[Any]:
        self.package.omp_set_num_threads(self.threads)
        self.refine_for(k)
        return self.index.search(queries, k)[1]

    def search_one(self, query: NDArray[Any], k: int) -> NDArray[Any]:
        self.package.omp_set_num_threads(1)
        self.refine_for(k)
        return self.index.search(query[np.newaxis], k)[1][0]

    def close(self) -> None:
        del self.index


class FaissOnDisk(Faiss):
    """An IVF index whose inverted lists are a mapped file."""

    cached_by_kernel = True

    def build(self, index: Path, options: Options) -> Options:
        faiss = self.package
        made = self.make(options)
        ivf = faiss.extract_index_ivf(made)
        lists = faiss.OnDiskInvertedLists(ivf.nlist, ivf.code_size, str(index / LISTS))
        lists.merge_from_1(ivf.invlists)
        ivf.replace_invlists(lists, False)
        faiss.write_index(made, str(index / FILE))
        return {}

    def open(self, index: Path, options: Options) -> None:
        # The folder was renamed after the build, so look for the lists next to the index.
        flags = self.package.IO_FLAG_ONDISK_SAME_DIR
        self.index = self.package.read_index(str(index / FILE), flags)
        if options.get("read_ahead", True):
            self.note = "the kernel reads ahead"
        else:
            expect_random([index / LISTS])
