"""Collections in an object store: a real server if its program is installed, and the errors of failing
servers."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import numpy as np
import pytest

import bathyal
from bathyal import Collection
from test_stores import SECRET, needed_server, running_server

ROWS = np.random.default_rng(5).standard_normal((300, 12), dtype=np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Options that reach a server with a bucket ``tests``."""
    place = tmp_path_factory.mktemp("store")
    with running_server(needed_server(place), place) as options:
        yield options


@pytest.fixture(autouse=True)
def user(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without store settings in the environment, and with empty caches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """An address that no other test has."""
    return f"s3://tests/{request.node.name}"


def environment(server: dict[str, str]) -> dict[str, str]:
    """The environment of a process that reaches the server without options."""
    return {**os.environ, **{f"AWS_{key.upper()}": value for key, value in server.items()}}


def created(address: str, server: dict[str, str]) -> Collection:
    docs = Collection.create(address, dim=12, id="u64", columns={"year": "int64"}, store_options=server)
    docs.add(range(200), ROWS[:200], {"year": range(200)})
    return docs


def test_a_collection_in_a_bucket(server: dict[str, str], address: str, tmp_path: pathlib.Path) -> None:
    with created(address, server) as docs:
        docs.flush()
        docs.upsert([5], ROWS[250], {"year": [2000]})
        docs.delete(filter="year < 3")
        assert len(docs) == 197 and docs.count("year = 2000") == 1
        assert docs.search(ROWS[100], k=1).ids.tolist() == [100]
        assert docs.search(ROWS[250], k=1, filter="year > 1000").ids.tolist() == [5]
        assert docs.verify(progress=False)["sound"]
        assert docs.copy(tmp_path / "here", progress=False)["rows"] == 197
        for text in (repr(docs), str(docs.inspect()), str(docs.schema), docs.path):
            assert SECRET not in text
        assert SECRET not in repr(vars(docs))
        assert docs.compact(full=True, progress=False)["segments_after"] == 1
    with Collection.open(tmp_path / "here") as here:
        assert here.copy(f"{address}-again", store_options=server, progress=False)["rows"] == 197
    with Collection.open(f"{address}-again", store_options=server) as again:
        assert list(again) == [id for id in range(3, 200)]
        with pytest.raises(FileExistsError):
            Collection.create(address, dim=3, store_options=server)


def test_processes_share_a_bucket(server: dict[str, str], address: str) -> None:
    docs = created(address, server)
    program = textwrap.dedent(
        f"""
        import bathyal, numpy, sys
        docs = bathyal.Collection.open({address!r})
        print(len(docs), flush=True)
        sys.stdin.readline()
        docs.refresh()
        print(len(docs), flush=True)
        docs.add([1000], numpy.zeros((1, 12)))
        print("wrote", flush=True)
        sys.stdin.readline()
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment(server),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == "200\n"
        docs.delete([0, 1])
        print(file=other.stdin, flush=True)
        assert other.stdout.readline() == "198\n"
        assert other.stdout.readline() == "wrote\n"
        # The other process writes now; this one gets an error, and none of its rows is lost.
        with pytest.raises(OSError, match="has taken over writing") as raised:
            docs.add([2000], ROWS[:1])
        assert SECRET not in str(raised.value)
        docs.refresh()
        assert len(docs) == 199 and 1000 in docs and 2000 not in docs
        other.kill()
    docs.close()
    with Collection.open(address, store_options=server) as again:
        again.add([3000], ROWS[:1])
        assert len(again) == 200


def test_messages_contain_no_secrets(server: dict[str, str], address: str, tmp_path: pathlib.Path) -> None:
    created(address, server).close()
    wrong = {**server, "secret_access_key": SECRET[::-1]}
    here = Collection.create(tmp_path / "here", dim=3)
    for work in (
        lambda: Collection.open(address, store_options=wrong),
        lambda: Collection.create(address + "-new", dim=3, store_options=wrong),
        lambda: here.copy(address + "-copy", store_options=wrong, progress=False),
    ):
        with pytest.raises(OSError, match="the store answered 403") as raised:
            work()
        assert SECRET[::-1] not in str(raised.value) and "s3://tests/" in str(raised.value)
    for options, kind, words in [
        ({**server, "secret_acces_key": SECRET}, ValueError, "secret_acces_key"),
        ({**server, "hedge": SECRET}, ValueError, "on or off"),
        ({**server, "endpoint": f"http://{SECRET}@127.0.0.1:1:1"}, ValueError, "http://HOST:PORT"),
        (f"secret_access_key={SECRET}", TypeError, "expected a dictionary"),
    ]:
        for work in (
            lambda options: Collection.open(address, store_options=options),
            lambda options: Collection.create(address + "-new", dim=3, store_options=options),
            lambda options: here.copy(address + "-copy", store_options=options, progress=False),
        ):
            with pytest.raises(kind, match=words) as raised:
                work(options)
            assert SECRET not in f"{raised.value} {raised.value!r}"
    with pytest.raises(ValueError, match="takes no store options"):
        Collection.open(tmp_path / "here", store_options={"region": "eu"})
    here.close()


def test_the_command_reaches_a_bucket_and_prints_no_secret(
    server: dict[str, str], address: str, tmp_path: pathlib.Path
) -> None:
    rows = [{"id": str(row), "vector": ROWS[row].tolist(), "year": row} for row in range(20)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    options = [part for key, value in server.items() for part in ("--store-option", f"{key}={value}")]
    query = ",".join(map(str, ROWS[7].tolist()))

    def run(*arguments: str, status: int = 0, env: dict[str, str] | None = None) -> dict[str, object]:
        command = [sys.executable, "-m", "bathyal", "collection", *arguments, "--json", "-v"]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
        assert SECRET not in done.stdout + done.stderr and SECRET[::-1] not in done.stdout + done.stderr
        assert done.returncode == status, done.stdout + done.stderr
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    schema = ["--id", "string", "--vector", "vector:12:f32:l2", "--column", "year:int64"]
    run("create", address, *schema, *options)
    assert run("add", address, "rows.jsonl", *options)["added"] == 20
    # By the environment, too.
    by_environment = environment(server)
    assert run("count", address, "--filter", "year < 5", env=by_environment)["rows"] == 5
    found = run("search", address, "--vector", query, "-k", "1", env=by_environment)
    assert '"7"' in json.dumps(found)
    run("compact", address, *options)
    run(
        "copy",
        address,
        "here.collection",
        *("--from-store-option" if at == "--store-option" else at for at in options),
    )
    run("copy", "here.collection", address + "-again", *options)
    assert run("verify", address + "-again", *options)["sound"] is True
    wrong = [f"secret_access_key={SECRET[::-1]}" if SECRET in part else part for part in options]
    for arguments in (["count", address], ["copy", "here.collection", address + "-third"]):
        error = run(*arguments, *wrong, status=1)["error"]
        assert isinstance(error, dict) and "403" in error["message"] and address in error["message"]
    error = run("count", address, *options, "--store-option", f"secret={SECRET}", status=1)["error"]
    assert isinstance(error, dict) and "secret" in error["message"]


def test_a_collection_that_is_searched_from_a_cache(
    server: dict[str, str], address: str, tmp_path: pathlib.Path
) -> None:
    created(address, server).close()
    cached = {**server, "cache": str(tmp_path / "blocks"), "cache_disk": "100MB"}
    with Collection.open(address, store_options=cached) as docs:
        docs.flush()
        for _ in range(2):
            assert docs.search(ROWS[:200], k=1).ids[:, 0].tolist() == list(range(200))
        assert docs.get([17]).metadata["year"].tolist() == [17]
        assert isinstance(docs, bathyal.Collection)


@pytest.mark.parametrize("name", ["café", "a~b", "100%", "a?region=x", "a#1", "a b", "日本"])
def test_names_in_a_bucket_are_as_given(server: dict[str, str], address: str, name: str) -> None:
    folder = f"{address.partition('[')[0]}/{name}"
    with created(f"{folder}/{name}", server):
        pass
    with Collection.open(f"{folder}/{name}", store_options=server) as docs:
        assert len(docs) == 200
    listed = bathyal.listing(folder, store_options=server)
    assert [(one["name"], one["path"]) for one in listed] == [(name, f"{folder}/{name}")]
    bathyal.build(ROWS, f"{folder}/{name}.index", progress=False, store_options=server).close()
    assert "encoded_keys" not in bathyal.verify(
        f"{folder}/{name}.index", progress=False, store_options=server
    )


def test_names_that_an_earlier_version_encoded_are_found(server: dict[str, str], address: str) -> None:
    earlier, typed = f"{address}/caf%C3%A9/y%7E.index", f"{address}/café/y~.index"
    bathyal.build(ROWS, earlier, progress=False, store_options=server).close()
    with bathyal.open(typed, store_options=server) as index:
        assert index.search(ROWS[:5], k=1).ids[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert bathyal.verify(typed, progress=False, store_options=server)["encoded_keys"] == earlier
    assert [one["name"] for one in bathyal.listing(f"{address}/café", store_options=server)] == ["y~.index"]
    with pytest.raises(FileExistsError, match="caf%C3%A9"):
        bathyal.build(ROWS, typed, progress=False, store_options=server)
    bathyal.build(ROWS[:50], typed, progress=False, overwrite=True, store_options=server).close()
    with bathyal.open(earlier, store_options=server) as index:
        assert len(index) == 50
