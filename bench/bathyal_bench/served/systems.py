"""How each system is served and asked."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

from bathyal_bench.changing.systems import WANTED, Bathyal, Chroma, K, LanceDB, MilvusLite, System, Vectors

# Shares of the rows that match the condition of a query.
SHARES = (1.0, 0.1, 0.01)


class Served:
    """A system behind HTTP. ``work`` has the folder that :mod:`bathyal_bench.served.prepare` filled."""

    kind: type[System]

    def __init__(self, work: Path, port: int, effort: Any) -> None:
        """Serves with an effort at a port of this machine."""
        self.work, self.port, self.effort = work, port, effort
        self.path = next(path for path in (work / self.kind.package).iterdir() if path.is_dir())

    def command(self) -> list[Any]:
        """Returns the command that serves the rows."""
        return [
            sys.executable, "-m", "bathyal_bench.served.thin", self.kind.package, self.work,
            json.dumps(self.effort), self.port,
        ]  # fmt: skip

    def tune(self) -> None:
        """Sets the effort before the server starts, if requests do not have it."""

    def headers(self) -> list[str]:
        """Returns the headers of every request."""
        return []

    def request(self, query: Vectors, share: float) -> dict[str, str]:
        """Returns the path and the body of a search."""
        return {"path": "/search", "body": json.dumps({"vector": floats(query), "share": share})}

    def ids(self, answer: dict[str, Any]) -> list[int]:
        """Returns the ids in an answer."""
        found: list[int] = answer["ids"]
        return found


def floats(query: Vectors) -> list[float]:
    """Returns a vector as numbers of JSON."""
    return [float(number) for number in query]


class ServedBathyal(Served):
    """``bathyal serve``: rows are on the disk, and codes in memory."""

    kind = Bathyal

    @property
    def keys(self) -> Path:
        """The file of keys."""
        return self.work / "keys.toml"

    def command(self) -> list[Any]:
        program = Path(sys.executable).parent / "bathyal"
        return [program, "serve", self.path, "--listen", f"127.0.0.1:{self.port}", "--keys", self.keys]

    def tune(self) -> None:
        """Makes a file of keys."""
        text = '[[key]]\nname = "bench"\nsecret = "bench-0123456789abcdef"\nright = "read"\n'
        self.keys.touch(mode=0o600)
        self.keys.write_text(text)

    def headers(self) -> list[str]:
        secret = re.search('secret = "(.*)"', self.keys.read_text())
        assert secret is not None
        return [f"Authorization: Bearer {secret[1]}"]

    def request(self, query: Vectors, share: float) -> dict[str, str]:
        body = {"vector": floats(query), "k": K, "recall": WANTED, "columns": []}
        body |= {} if share >= 1 else {"filter": f"share < {share}"}
        return {"path": "/v1/collections/rows/search", "body": json.dumps(body)}

    def ids(self, answer: dict[str, Any]) -> list[int]:
        return [row["id"] for row in answer["results"][0]["neighbors"]]


class ServedChroma(Served):
    """``chroma run``: rows are in memory once they are searched."""

    kind = Chroma

    def command(self) -> list[Any]:
        program = Path(sys.executable).parent / "chroma"
        return [program, "run", "--path", self.path, "--host", "127.0.0.1", "--port", self.port]

    def tune(self) -> None:
        code = (
            "import sys; from pathlib import Path; from bathyal_bench.changing.systems import Chroma\n"
            "one = Chroma(Path(sys.argv[1])); one.open(); one.effort = int(sys.argv[2]); one.tuned()"
        )
        run_python(code, self.work, self.effort)

    def request(self, query: Vectors, share: float) -> dict[str, str]:
        body: dict[str, Any] = {"query_embeddings": [floats(query)], "n_results": K, "include": []}
        body |= {} if share >= 1 else {"where": {"share": {"$lt": share}}}
        return {"path": f"{self.collections}/{self.collection()}/query", "body": json.dumps(body)}

    collections = "/api/v2/tenants/default_tenant/databases/default_database/collections"

    def collection(self) -> str:
        """Asks the running server for the id of the rows, once."""
        if not hasattr(self, "known"):
            url = f"http://127.0.0.1:{self.port}{self.collections}/rows"
            with urllib.request.urlopen(url, timeout=60) as answer:
                self.known = str(json.load(answer)["id"])
        return self.known

    def ids(self, answer: dict[str, Any]) -> list[int]:
        return [int(name) for name in answer["ids"][0]]


class ServedLanceDB(Served):
    """LanceDB behind a small server."""

    kind = LanceDB


class ServedMilvusLite(Served):
    """Milvus Lite behind a small server."""

    kind = MilvusLite


def run_python(code: str, *arguments: Any) -> None:
    """Runs code in a process of its own."""
    import subprocess

    subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=True)


SERVED: list[type[Served]] = [ServedBathyal, ServedChroma, ServedLanceDB, ServedMilvusLite]
