"""Collections behind a server answer as collections of this process do, and changes are done once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import urllib.parse

import numpy as np
import pytest

import bathyal
import serving

COLUMNS = {"year": "int64", "lang": "string", "tags": "list<string>", "at": "timestamp", "query": "float64"}
ROWS = 300


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A server for the tests of this file."""
    with serving.serving(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def server(running):
    """A client of the server."""
    with bathyal.connect(f"http://{running.api}", running.key) as server:
        yield server
        for name in server.collections():
            server.remove(name)


def vectors_of(rows, dim, seed=1):
    return np.random.default_rng(seed).standard_normal((rows, dim), dtype=np.float32)


def both(server, name, **arguments):
    """Returns a collection of this process, and one behind the server with the same schema."""
    return bathyal.Collection.create(f"memory://{name}", **arguments), server.create(name, **arguments)


def test_a_collection_behind_a_server_answers_as_one_of_this_process(server):
    vectors = vectors_of(ROWS, 8)
    answers = []
    for docs in both(server, "same", dim=8, metric="cosine", columns=COLUMNS):
        metadata = {
            "year": [2000 + row % 30 for row in range(ROWS)],
            "lang": [["de", "en", None][row % 3] for row in range(ROWS)],
            "tags": [["x", "größer"][: row % 3] for row in range(ROWS)],
            "at": np.arange(ROWS).astype("datetime64[s]"),
            "query": [None if row % 2 else row / 4 for row in range(ROWS)],
        }
        ids = [f"row {row:03} ü" for row in range(ROWS)]
        seen = [docs.add(ids[:-1], vectors[:-1], {name: held[:-1] for name, held in metadata.items()})]
        seen += [docs.upsert(ids[-2:], vectors[-2:], {"year": 1990})]
        seen += [docs.update([*ids[:2], "none"], {"lang": "fr", "year": [None, 1, 2]})]
        seen += [docs.delete([ids[5], "none"]), docs.delete(filter="year = 2007")]
        seen += [len(docs), ids[4] in docs, ids[5] in docs, docs.count({"lang": "fr"}), docs.schema]
        seen += [list(docs), [len(batch) for batch in docs.batches(rows=100)]]
        rows = docs.get([ids[9], "none", ids[3], ids[9]], vectors=True)
        seen += [rows.ids.tolist(), rows.places.tolist(), rows.metadata.to_list(), rows.vectors.tolist()]
        assert docs.get([]).ids.tolist() == []
        for filter in (None, "year >= 2010 and lang = 'de'", {"tags": {"$contains": "größer"}}):
            found = docs.search(vectors[:4], k=5, filter=filter, columns=True, vectors=True)
            seen += [found.ids.tolist(), found.distances.tolist(), found.matches]
            seen += [found.metadata.to_list(), found.vectors.tolist()]
        one = docs.search(vectors[7], k=3, columns="lang", recall=0.9)
        seen += [one.ids.tolist(), one.metadata.to_list(), docs.search(vectors[:0]).ids.shape]
        with pytest.warns(bathyal.SearchWarning):
            few = docs.search(vectors[0], k=10, filter="lang = 'fr'")
        explained = docs.explain(vectors[3], k=2)
        seen += [few.ids.tolist(), explained["ids"], [plan["part"] for plan in explained["plans"]]]
        assert explained["costs"].keys() >= {"full_distances", "reads", "seconds"}
        assert asyncio.run(docs.search_async(vectors[8], k=1)).ids.tolist() == [ids[8]]
        docs.flush()
        seen += [docs.compact(full=True)["segments_after"], docs.verify()["sound"], docs.inspect()["rows"]]
        assert docs.warm(k=5, field="vector")["queries"] > 0
        assert docs.refresh() is False
        answers.append(seen)
    for here, there in zip(*answers, strict=True):
        assert here == there


@pytest.mark.parametrize("element", ["f32", "f16", "bf16", "u8", "i8", "b1"])
def test_each_element_arrives_as_it_was_given(server, element):
    rows = np.random.default_rng(3).integers(0, 100, (50, 16))
    rows = np.packbits(rows % 2, axis=1) if element == "b1" else rows
    here, there = both(server, f"of-{element}", dim=16, element=element, id="u64")
    for docs in (here, there):
        assert docs.add(range(50), rows).added == 50
    assert (
        here.get(range(50), vectors=True).vectors.tolist()
        == there.get(range(50), vectors=True).vectors.tolist()
    )
    answers = [docs.search(rows[:5], k=4, vectors=True) for docs in (here, there)]
    assert answers[0].ids.tolist() == answers[1].ids.tolist()
    assert answers[0].vectors.tolist() == answers[1].vectors.tolist()


def test_several_fields_of_vectors_and_batches(server):
    fields = {"title": (4, "f32", "cosine"), "body": (6, "u8")}
    docs = server.create("fields", vectors=fields, id="u64")
    rows = {"title": vectors_of(40, 4), "body": np.arange(240).reshape(40, 6)}
    assert docs.add(range(40), rows).added == 40
    assert docs.search(rows["body"][3], k=1, field="body").ids.tolist() == [3]
    found = docs.get([2], vectors="title").vectors
    assert list(found) == ["title"]
    copy = server.create("copied", vectors=fields, id="u64")
    assert copy.add_batches(docs.batches(vectors=True, rows=7)).added == 40
    assert docs.copy("another")["rows"] == 40
    assert server.collections() == ["another", "copied", "fields"]
    assert server.collections(prefix="co") == ["copied"]
    assert len(server.collection("another")) == 40


def test_refusals_are_the_exceptions_of_the_same_call_here(server, running):
    docs = server.create("refused", dim=2, columns={"year": "int64"})
    docs.add(["a"], [[0, 1]])
    refused = [
        (lambda: docs.add(["b", "a"], [[0, 1], [1, 1]]), bathyal.DuplicateIdError, "nothing was written"),
        (lambda: docs.add(["b"], [[0, np.nan]]), ValueError, "NaN"),
        (lambda: docs.add(["b"], [[0, 1, 2]]), ValueError, "3"),
        (lambda: docs.add(["b", "c"], [[0, 1]]), ValueError, "there are 1 for 2 ids"),
        (lambda: docs.search([0, 1], filter="colour = 1"), ValueError, "colour"),
        (lambda: docs.search([0, 1], recall=1.5), ValueError, "recall"),
        (lambda: docs.search([0, 1], threads=3), ValueError, "threads"),
        (lambda: docs.delete(filter={}), ValueError, "{}"),
        (lambda: docs.get([str(row) for row in range(10_001)]), ValueError, "10000"),
        (lambda: server.collection("nothing"), FileNotFoundError, "nothing"),
        (lambda: server.create("refused", dim=2), FileExistsError, "refused"),
        (lambda: server.create("../refused", dim=2), ValueError, "name"),
        (lambda: server.remove("nothing"), FileNotFoundError, "nothing"),
        (docs.stats, bathyal.Error, "--metrics"),
        (docs.versions, bathyal.Error, "versions"),
        (lambda: docs.audit([[0, 1]]), bathyal.Error, "audit"),
        (lambda: docs.add_file("rows.parquet"), bathyal.Error, "add_batches"),
        (lambda: docs.export("rows.parquet"), bathyal.Error, "batches"),
        (lambda: docs.remove_calibration("x"), bathyal.Error, "calibrate"),
        (lambda: docs.copy("x", store_options={"a": "b"}), ValueError, "store_options"),
        (lambda: bathyal.search_many([docs], [[0, 1]]), TypeError, "server"),
        (lambda: bathyal.connect("localhost:7700"), ValueError, "http://HOST:PORT"),
        (lambda: bathyal.connect("http://localhost:x"), ValueError, "localhost:x"),
        (lambda: bathyal.connect("http://localhost/v1"), ValueError, "a host and a port"),
        (lambda: bathyal.connect("http://localhost", timeout=0), ValueError, "timeout"),
        (lambda: bathyal.connect("http://localhost", certificates="x.pem"), ValueError, "https"),
    ]
    for call, kind, words in refused:
        with pytest.raises(kind, match=words.replace("{", r"\{")):
            call()
    assert len(docs) == 1
    docs.close()
    with pytest.raises(ValueError, match="closed"):
        docs.search([0, 1])
    stranger = bathyal.connect(f"http://{running.api}", "no key of this server")
    with pytest.raises(PermissionError):
        stranger.collections()
    keyless = bathyal.connect(f"http://{running.api}")
    with pytest.raises(PermissionError, match="BATHYAL_KEY"):
        keyless.collections()


def test_a_calibration_on_the_server_counts(server):
    docs = server.create("calibrated", dim=16, id="u64")
    docs.add(range(3000), vectors_of(3000, 16))
    docs.flush()
    assert docs.calibrate(vectors_of(300, 16, 2), name="text")["queries"] == 300
    assert docs.inspect()["calibrations"][0]["name"] == "text"
    assert docs.search(vectors_of(2, 16, 2), recall=0.9, calibration="text").ids.shape == (2, 10)


class Proxy:
    """Passes connections on to a server, and cuts some of them before the answer."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self.target, self.cut, self.requests = (host, int(port)), 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                client, _ = self.listener.accept()
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()
                continue
            return

    def _pass(self, client: socket.socket) -> None:
        with client, socket.create_connection(self.target) as server:
            threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
            while answer := server.recv(1 << 20):
                if self.cut > 0:
                    # The server has done the work: its answer is lost.
                    self.cut -= 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(answer)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while request := client.recv(1 << 20):
                self.requests += b"POST " in request
                server.sendall(request)
            server.shutdown(socket.SHUT_WR)


def test_a_change_whose_answer_is_lost_is_done_once(server, running):
    server.create("lost", dim=2)
    proxy = Proxy(running.api)
    docs = bathyal.connect(proxy.url, running.key).collection("lost")
    for number in range(4):
        proxy.cut, before = 2, proxy.requests
        assert docs.add([f"row {number}"], [[number, 1]]).added == 1
        assert proxy.requests - before > 2
    proxy.cut = 2
    assert docs.delete(["row 0"]).deleted == 1
    assert len(docs) == 3
    proxy.cut = 1000
    with pytest.raises(ConnectionError, match=urllib.parse.urlsplit(proxy.url).netloc):
        docs.search([0, 1])
    proxy.listener.close()


def test_a_server_that_starts_again_is_found_again(tmp_path):
    with serving.serving(tmp_path) as first:
        docs = bathyal.connect(f"http://{first.api}", first.key).create("again", dim=2)
        docs.add(["a"], [[0, 1]])
    with pytest.raises(ConnectionError):
        docs.count()
    with serving.serving(tmp_path, listen=first.api):
        assert docs.add(["b"], [[1, 1]]).added == 1
        assert list(docs) == ["a", "b"]


def test_every_server_of_a_folder_takes_changes(tmp_path):
    def connected(running):
        return bathyal.connect(f"http://{running.api}", running.key)

    with serving.serving(tmp_path) as second, serving.serving(tmp_path) as third:
        with serving.serving(tmp_path) as first:
            connected(first).create("words", dim=2, id="u64")
            for number, running in enumerate((first, second, third)):
                docs = connected(running).collection("words")
                assert docs.add([number], [[number, 1]]).added == 1
                assert docs.search([number, 1], k=1).ids.tolist() == [number]
        docs = connected(third).collection("words")
        assert docs.upsert([1, 7], [[1, 2], [7, 1]]).added == 1
        assert connected(second).collection("words").delete([0]).deleted == 1
        assert sorted(connected(second).collection("words")) == [1, 2, 7]


def test_threads_and_a_forked_process_share_a_client(server):
    docs = server.create("shared", dim=2, id="u64")

    def add(first):
        for row in range(first, first + 20):
            assert docs.add([row], [[row, 1]]).added == 1

    threads = [threading.Thread(target=add, args=(100 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    child = os.fork()
    if child == 0:
        try:
            docs.add([5000], [[1, 1]])
            os._exit(0 if len(docs) == 161 else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert len(docs) == 161
    assert docs.search([719, 1], k=1).ids.tolist() == [719]


def test_a_snapshot_shows_the_rows_of_its_moment_until_it_is_closed(server):
    docs = server.create("held", dim=2, columns={"year": "int64"})
    docs.add(["a", "b"], [[0, 1], [1, 0]], {"year": [1, 2]})
    with docs.snapshot() as before:
        docs.delete("a")
        docs.upsert(["c"], [[0, 1]], {"year": 3})
        assert (len(before), len(docs)) == (2, 2)
        assert list(before.search([0, 1], k=2).ids) == ["a", "b"]
        assert list(docs.search([0, 1], k=2).ids) == ["c", "b"]
        assert before.get("a").metadata.to_list() == [{"year": 1}]
        assert before.count("year < 3") == 2
        assert [list(part.ids) for part in before.batches(rows=1)] == [["a"], ["b"]]
        assert before.sequence < docs.snapshot().sequence
        # Another one is not affected by the end of this.
        second = docs.snapshot()
    with pytest.raises(ValueError, match="closed"):
        len(before)
    assert list(second.search([0, 1], k=1).ids) == ["c"]
    second.close()
