"""Collections behind a server: the handles of :class:`bathyal.Collection` over HTTP."""

from __future__ import annotations

import contextlib
import json
import urllib.parse
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bathyal import _bathyal
from bathyal.arguments import Metric
from bathyal.collection import Collection
from bathyal.connection import ARROW, JSON, Connection
from bathyal.schema import Element, Field, IdKind, schema

LARGEST_BODY = 32 << 20
"""Most bytes of a batch that is cut from a stream: half of what a server takes by default."""
SNAPSHOT_SECONDS = 3600
"""Seconds after which a server drops a snapshot that was not closed."""
MOST_PAGE = 10_000
"""Most rows of a page of a scan, and most ids of a request."""


def connect(
    url: str,
    key: str | None = None,
    *,
    timeout: float | None = 60.0,
    certificates: str | None = None,
) -> Server:
    """Returns the server at ``url``, which ``bathyal serve`` has started. Its collections have the methods of
    :class:`Collection`.

    Connections are kept and shared by threads. A request is sent again if the connection fails or the server is
    busy. A change is done once all the same, unless the server restarts in between: it may be done again then, and
    ``add`` refuses rows that it has added itself.

    Args:
        url: ``http://HOST:PORT`` or ``https://HOST:PORT``.
        key: a secret of the server's file of keys; None takes the environment variable ``BATHYAL_KEY``.
        timeout: seconds without a byte from the server after which a request fails; None means no limit.
            ``compact``, ``verify``, ``copy`` and ``calibrate`` have none.
        certificates: a file of certificates that are trusted in place of the system's.

    Raises:
        ValueError: not an address of a server.
    """
    seconds = None if timeout is None else float(timeout)
    if seconds is not None and not seconds > 0:
        raise ValueError(f"timeout is {timeout}; expected a number of seconds above 0, or None")
    return Server(Connection(url, key, seconds, certificates))


class Server:
    """A server, see :func:`connect`. The first request finds out whether it is there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def url(self) -> str:
        """The address."""
        return self._connection.url

    def collections(self, prefix: str = "") -> list[str]:
        """Returns the names of the collections that the key may read."""
        return self._names("collections", prefix)

    def indexes(self, prefix: str = "") -> list[str]:
        """Returns the names of the indexes that the key may read."""
        return self._names("indexes", prefix)

    def _names(self, what: str, prefix: str) -> list[str]:
        names: list[str] = []
        page: dict[str, str] = {"prefix": prefix}
        while True:
            found = self._connection.get(f"/v1/{what}?{urllib.parse.urlencode(page)}").json()
            names += found["names"]
            if found.get("next") is None:
                return names
            page["after"] = found["next"]

    def collection(self, name: str) -> Collection:
        """Returns a collection.

        Raises:
            FileNotFoundError: there is none of this name.
        """
        return _collection(self._connection, name, None)

    def create(
        self,
        name: str,
        dim: int | None = None,
        metric: Metric = "l2",
        *,
        element: Element = "f32",
        vectors: Mapping[str, Field] | None = None,
        id: IdKind = "string",
        columns: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Collection:
        """Creates a collection; the arguments are those of :meth:`Collection.create`.

        Raises:
            FileExistsError: there is one of this name.
        """
        text = schema((dim, metric, element), vectors, id, columns, options or {})
        body = {"name": name, "schema": json.loads(text)}
        made = self._connection.send("POST", "/v1/collections", json.dumps(body).encode(), once=True)
        return _collection(self._connection, name, json.dumps(made.json()["schema"]))

    def remove(self, name: str) -> dict[str, Any]:
        """Removes a collection with all of its rows. Returns ``name``, ``rows`` and ``bytes``."""
        return self._connection.send("DELETE", _path(name), once=True).json()

    def close(self) -> None:
        """Closes the connections; a later request opens one again."""
        self._connection.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<bathyal.Server {self.url!r}>"


def _collection(connection: Connection, name: str, known: str | None) -> Collection:
    handle: Any = ServedCollection(connection, name, known)
    return Collection(handle, f"{connection.url}/{name}")


def _path(name: str) -> str:
    return f"/v1/collections/{urllib.parse.quote(name, safe='')}"


def _not_served(what: str, instead: str) -> NoReturn:
    raise _bathyal.Error(f"{what} is not there for a collection on a server; {instead}")


class ServedReading:
    """Reads a collection on a server: the methods of the compiled module's handle for reading."""

    def __init__(self, connection: Connection, name: str, schema: str, held: str | None = None) -> None:
        self._connection, self._path, self._schema = connection, _path(name), schema
        # The name of a snapshot that the server holds.
        self._held = {} if held is None else {"snapshot": held}

    @property
    def sequence(self) -> int:
        """Not known to clients."""
        _not_served("sequence", "compare the answers")

    def search(
        self,
        queries: NDArray[Any],
        arguments: _bathyal._QuestionArguments,
        cancel: _bathyal.Cancel | None,
    ) -> _bathyal._FoundRows:
        """Answers queries. A search that a task has given up goes on until it is answered."""
        if arguments["threads"] > 1:
            raise ValueError(f"threads is {arguments['threads']}; a server searches with its own threads")
        field = arguments["field"] or json.loads(self._schema)["vectors"][0]["name"]
        is_single = queries.ndim == 1 or len(queries) == 1
        options = {
            "field": field,
            "k": arguments["k"],
            "columns": arguments["columns"],
            "with_vectors": arguments["vectors"],
            "explain": is_single,
            "recall": arguments["recall"],
            "search_list": arguments["search_list"],
            "calibration": arguments["calibration"],
            **_filter(arguments["filter"]),
            **self._held,
        }
        body = _bathyal.queries_to_arrow(field, queries)
        if body is None:
            _, part = self.get([], arguments["columns"], [field] if arguments["vectors"] else [], None)
            matches = self.count(arguments["filter"], None)
            report = {
                "k": min(arguments["k"], matches),
                "plans": [],
                "notes": [],
                "totals": {},
                "seconds": 0.0,
            }
            vectors = part[2][0] if arguments["vectors"] else None
            return part[0], np.empty(0, np.float32), part[1], vectors, matches, json.dumps(report)
        headers = {"Content-Type": ARROW, "Accept": ARROW, "Bathyal-Search": json.dumps(options)}
        timeout = 0.0 if arguments["timeout"] is None else arguments["timeout"]
        reply = self._connection.send("POST", f"{self._path}/search", body, headers, timeout)
        found = _bathyal.arrow_to_found(self._schema, field if arguments["vectors"] else None, reply.body)
        details = reply.header("Bathyal-Report") or {"plans": [], "costs": {}, "seconds": 0.0}
        report = {
            "k": reply.header("Bathyal-K"),
            "notes": reply.header("Bathyal-Notes"),
            "plans": details["plans"],
            "totals": details["costs"],
            "seconds": details["seconds"],
        }
        return *found, reply.header("Bathyal-Matches"), json.dumps(report)

    def get(
        self,
        given: object,
        columns: list[str] | None,
        vectors: list[str],
        cancel: _bathyal.Cancel | None,
    ) -> tuple[NDArray[np.uint32], _bathyal._Part]:
        """Returns rows by their ids, with the place of each among the ids."""
        ids = json.loads(_bathyal.ids_to_json(self._schema, given))
        if len(ids) > MOST_PAGE:
            raise ValueError(
                f"{len(ids)} ids are too many for one request to a server; get {MOST_PAGE} at once"
            )
        wanted_rows = {"ids": ids, "columns": columns, "vectors": vectors, **self._held}
        body = json.dumps(wanted_rows).encode()
        reply = self._connection.send("POST", f"{self._path}/get", body, {"Accept": ARROW})
        part = _bathyal.arrow_to_rows(self._schema, vectors, reply.body)
        places, found = [], iter(part[0].tolist())
        wanted = next(found, None)
        for place, one in enumerate(ids):
            if one == wanted:
                places.append(place)
                wanted = next(found, None)
        return np.array(places, np.uint32), part

    def count(self, condition: _bathyal._Condition | None, cancel: _bathyal.Cancel | None) -> int:
        """Returns the number of rows that match."""
        counted = self._connection.post(f"{self._path}/count", {**_filter(condition), **self._held})
        return int(counted["count"])

    def scan(
        self, condition: _bathyal._Condition | None, columns: list[str] | None, vectors: list[str]
    ) -> ServedScan:
        """Returns a scan of the rows that match."""
        page = {**_filter(condition), "columns": columns, "vectors": vectors, **self._held}
        return ServedScan(self._connection, self._path, self._schema, page)


class ServedSnapshot(ServedReading):
    """Reads a snapshot that a server holds."""

    def __init__(self, connection: Connection, name: str, schema: str, answer: dict[str, Any]) -> None:
        super().__init__(connection, name, schema, answer["snapshot"])
        self._sequence = int(answer["sequence"])

    @property
    def sequence(self) -> int:
        """The number of the last change in the snapshot."""
        return self._sequence

    def release(self) -> None:
        """Ends the snapshot on the server, unless its time is over."""
        with contextlib.suppress(FileNotFoundError):
            self._connection.post(f"{self._path}/release", self._held)


class ServedScan:
    """Rows page by page, each with the rows of its own moment, or of a snapshot."""

    def __init__(self, connection: Connection, path: str, schema: str, page: dict[str, Any]) -> None:
        self._connection, self._path, self._schema, self._page = connection, path, schema, page
        self._ended = False

    def next(self, most: int) -> _bathyal._Part | None:
        """Returns up to ``most`` further rows; None at the end."""
        if self._ended:
            return None
        body = json.dumps({**self._page, "limit": min(most, MOST_PAGE)}).encode()
        reply = self._connection.send("POST", f"{self._path}/scan", body, {"Accept": ARROW})
        part = _bathyal.arrow_to_rows(self._schema, self._page["vectors"], reply.body)
        after = reply.header("Bathyal-Next")
        self._ended = after is None
        self._page["after"] = after
        return part if len(part[0]) else None


class ServedCollection:
    """Changes a collection on a server: the methods of the compiled module's handle of a collection."""

    largest_batch_bytes = LARGEST_BODY

    def __init__(self, connection: Connection, name: str, known: str | None) -> None:
        self._connection, self._name, self._path = connection, name, _path(name)
        self._schema = known or json.dumps(connection.get(self._path).json()["schema"])
        self._reading: ServedReading | None = ServedReading(connection, name, self._schema)

    def close(self) -> None:
        """Ends the use of this object; the collection stays open on the server."""
        self._reading = None

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return self._reading is None

    def schema(self) -> str:
        """The schema as JSON."""
        return self._schema

    def reading(self) -> ServedReading:
        """Returns the handle for reading."""
        if self._reading is None:
            raise ValueError("the collection is closed; open it again")
        return self._reading

    def snapshot(self) -> ServedSnapshot:
        """Lets the server hold the collection as it is, for an hour at most."""
        self.reading()
        answer = self._connection.post(f"{self._path}/snapshot", {"seconds": SNAPSHOT_SECONDS})
        return ServedSnapshot(self._connection, self._name, self._schema, answer)

    def _changed(self, operation: str, body: bytes, kind: str = JSON) -> _bathyal._Written:
        self.reading()
        written = self._connection.change(f"{self._path}/{operation}", body, kind)
        return written["added"], written["replaced"], written["deleted"], written["missing"]

    def write(
        self, given: object, fields: list[NDArray[Any]], columns: object, upsert: bool
    ) -> _bathyal._Written:
        """Adds rows, or replaces those with the same ids."""
        body = _bathyal.rows_to_arrow(self._schema, given, fields, columns)
        if body is None:
            self.reading()
            return 0, 0, 0, 0
        return self._changed("upsert" if upsert else "add", body, ARROW)

    def update(self, given: object, columns: object) -> _bathyal._Written:
        """Changes columns of rows."""
        return self._changed("update", _bathyal.columns_to_arrow(self._schema, given, columns), ARROW)

    def delete(self, given: object) -> _bathyal._Written:
        """Deletes rows by their ids."""
        ids = _bathyal.ids_to_json(self._schema, given)
        return self._changed("delete", f'{{"ids":{ids}}}'.encode())

    def delete_matching(self, condition: _bathyal._Condition) -> _bathyal._Written:
        """Deletes the rows that match."""
        return self._changed("delete", json.dumps(_filter(condition)).encode())

    def import_file(self, file: Any, arguments: Any, progress: Any) -> NoReturn:
        """Files are read by this process, not by the server."""
        _not_served("add_file()", "read the file, for example with pyarrow, and write it with add_batches()")

    def export_file(self, file: Any, *_: Any) -> NoReturn:
        """Files are written by this process, not by the server."""
        _not_served(
            "export()", "read the rows with batches(), or export the collection on the server's machine"
        )

    def flush(self) -> None:
        """Writes the rows in memory as a segment."""
        self._long("flush", {})

    def compact(self, full: bool, progress: Any) -> str:
        """Merges segments."""
        return json.dumps(self._long("compact", {"full": full}))

    def calibrate(
        self, queries: NDArray[Any], name: str, field: str | None, counts: tuple[int, int], progress: Any
    ) -> str:
        """Measures which effort reaches which recall with these queries."""
        most, threads = counts
        if threads > 0:
            raise ValueError(f"threads is {threads}; a server calibrates with its own threads")
        sent = {"queries": queries[:most].astype(np.float32).tolist(), "name": name, "field": field}
        return json.dumps(self._long("calibrate", sent))

    def remove_calibration(self, name: str, field: str | None) -> NoReturn:
        """Not an operation of the server."""
        _not_served(
            "remove_calibration()",
            "calibrate again under the same name, or remove it on the server's machine",
        )

    def audit(self, *_: Any) -> NoReturn:
        """Not an operation of the server."""
        _not_served("audit()", "audit the collection on the server's machine")

    def copy_to(self, target: tuple[Any, list[tuple[str, str]]], progress: Any) -> str:
        """Copies the collection to another name on the server."""
        name, store = target
        if store:
            raise ValueError("store_options are given, but a server copies to a name in its own data")
        return json.dumps(self._long("copy", {"to": str(name)}))

    def refresh(self) -> bool:
        """A server looks for changes of other processes by itself."""
        self.reading()
        return False

    def describe(self) -> str:
        """The description as JSON."""
        self.reading()
        return json.dumps(self._connection.get(self._path).json())

    def stats(self) -> NoReturn:
        """Counters are at an address of their own."""
        _not_served("stats()", "the server has its counters at the address of --metrics")

    def warm(self, arguments: _bathyal._QuestionArguments) -> str:
        """Opens the indexes of all segments."""
        self.reading()
        recall = arguments["recall"]
        return json.dumps(
            self._long("warm", {"k": arguments["k"], "recall": recall, "field": arguments["field"]})
        )

    def verify(self, progress: Any) -> list[str]:
        """Returns the faults as sentences."""
        return list(self._long("verify", {})["faults"])

    def versions(self) -> NoReturn:
        """Not an operation of the server."""
        _not_served("versions()", "list them on the server's machine")

    def _long(self, operation: str, content: Mapping[str, Any]) -> dict[str, Any]:
        self.reading()
        return self._connection.post(f"{self._path}/{operation}", content, timeout=None)


def _filter(condition: _bathyal._Condition | None) -> dict[str, Any]:
    """Returns the member of a request that has the filter."""
    if condition is None:
        return {}
    is_json, text = condition
    return {"filter": json.loads(text) if is_json else text}
