"""Calibrations and audits of a collection with given queries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bathyal import _bathyal
from bathyal.arguments import Path, whole
from bathyal.progress import Receiver, progress_receiver
from bathyal.reading import Filter, Reading, collection_request


class Calibrating(Reading):
    """The methods of open collections that measure the recall of given queries."""

    _handle: _bathyal.CollectionHandle

    def calibrate(
        self,
        queries: ArrayLike | Path,
        *,
        name: str = "default",
        field: str | None = None,
        max_queries: int = 1000,
        threads: int = 0,
        progress: bool | Receiver = True,
    ) -> dict[str, Any]:
        """Measures in every segment which effort reaches which recall with ``queries``, for searches that ask
        for a recall.

        Use it if queries have another source than the vectors, such as texts that search images. Searches use
        the result from then on, also after the collection was opened again. The collection keeps the queries:
        each segment that a later flush or merge makes is measured with them before searches see it. Rows in
        memory and small segments are compared one by one, so nothing is measured there.

        Args:
            queries: queries like those to come, some hundred or more, converted as :meth:`search` converts
                them.
            name: name of the calibration; one of the same name is replaced. A search uses the one named in
                ``calibration``, or else ``"default"``. If there is none of that name, it takes the largest
                effort that any calibration of the field chooses.
            field: the vector field, if there are several.
            max_queries: most queries to measure and to keep, up to 1,000; of more, a sample is taken.
            threads: 0 means all cores.
            progress: as :func:`build` takes it.

        Returns ``name``, ``field``, ``queries`` (the number measured), ``segments`` (measured) and
        ``exact_segments`` (in which there is nothing to measure), ``before`` (for each ``k``, the recall that
        these queries ``found`` in the segments when they ``asked`` for a recall), ``recalls`` (for each ``k``
        the ``least`` and the ``most`` recall that can be asked for), ``notes`` and ``seconds``.

        Raises:
            ValueError: arguments that do not fit the field, or more than eight calibrations of it.
            BlockingIOError: another process writes to the collection.

        >>> import numpy as np, bathyal
        >>> random = np.random.default_rng(1)
        >>> docs = bathyal.Collection.create("memory://calibrated", dim=16, id="u64")
        >>> _ = docs.add(range(2000), random.normal(size=(2000, 16)).astype(np.float32))
        >>> texts = random.uniform(-9, 9, (300, 16)).astype(np.float32)
        >>> docs.calibrate(texts, name="text")["queries"], docs.inspect()["calibrations"][0]["name"]
        (300, 'text')
        >>> docs.remove_calibration("text"), docs.remove_calibration("text")
        (True, False)
        """
        rows = self._queries(queries, field)
        counts = (whole("max_queries", max_queries, least=1), whole("threads", threads))
        with progress_receiver(progress) as receiver:
            text = self._handle.calibrate(rows, name, field, counts, receiver)
        report: dict[str, Any] = json.loads(text)
        return report

    def remove_calibration(self, name: str, *, field: str | None = None) -> bool:
        """Removes a calibration of :meth:`calibrate`. Returns False if there is none of this name."""
        return self._handle.remove_calibration(name, field)

    def audit(
        self,
        queries: ArrayLike | Path,
        *,
        k: int = 10,
        recall: float | Sequence[float] = 0.95,
        filter: Filter | None = None,
        field: str | None = None,
        calibration: str | None = None,
        max_queries: int = 1000,
        threads: int = 0,
        progress: bool | Receiver = True,
    ) -> dict[str, Any]:
        """Answers ``queries`` by searches for each ``recall``, and exactly by comparing all rows that match
        ``filter``, in segments and in memory; reports the recall that the searches found. Deleted rows do not
        count. All answers are those of one moment.

        Args:
            queries: queries like those of users, some hundred or more, converted as :meth:`search` converts
                them.
            k, filter, field, calibration, threads: as for :meth:`search`.
            recall: the recall to ask for, or several.
            max_queries: most queries to answer; of more, a sample is taken.
            progress: as :func:`build` takes it.

        Returns what :meth:`Index.audit` returns.

        Raises:
            ValueError: arguments that do not fit the field, or a filter that no row matches.

        >>> import numpy as np, bathyal
        >>> vectors = np.random.default_rng(1).standard_normal((2000, 16), dtype=np.float32)
        >>> docs = bathyal.Collection.create("memory://audited", dim=16, id="u64")
        >>> _ = docs.add(range(1900), vectors[:1900])
        >>> audited = docs.audit(vectors[1900:], recall=[0.5, 0.9], filter="id < 1000")["recalls"]
        >>> [one["found"] for one in audited], audited[1]["reached"]
        ([1.0, 1.0], True)
        """
        rows = self._queries(queries, field)
        recalls = [float(one) for one in np.atleast_1d(recall)]
        request = collection_request(
            [], k, filter=filter, field=field, threads=threads, calibration=calibration
        )
        most = whole("max_queries", max_queries, least=1)
        with progress_receiver(progress) as receiver:
            text = self._handle.audit(rows, recalls, request.arguments, most, receiver)
        report: dict[str, Any] = json.loads(text)
        return report

    def _queries(self, queries: ArrayLike | Path, field: str | None) -> NDArray[Any]:
        """Returns queries of a field as rows."""
        return self._arguments(collection_request(queries, field=field))[0]
