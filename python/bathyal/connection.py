"""Requests to a server of Bathyal over HTTP: connections that are kept, writes that are sent again, and the
exceptions of refusals."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
import time
import urllib.parse
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from bathyal import _bathyal

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
ATTEMPTS = 5
"""How often a request is sent in all, if the connection fails or the server is busy."""
FIRST_WAIT, MOST_WAIT = 0.1, 5.0
"""Seconds before the second attempt, and before any attempt."""
ERRORS: Mapping[str, type[Exception]] = {
    "invalid_argument": ValueError,
    "invalid_data": ValueError,
    "not_found": FileNotFoundError,
    "exists": FileExistsError,
    "permission": PermissionError,
    "busy": BlockingIOError,
    "cancelled": ConnectionError,
    "timeout": TimeoutError,
    "memory": MemoryError,
    "damaged": _bathyal.DamagedIndexError,
    "no_space": OSError,
    "store": OSError,
    "io": OSError,
    "device": OSError,
}
"""The exceptions of refusals by their kind. They are those of the same call without a server."""


class Reply(NamedTuple):
    """An answer of the server."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> dict[str, Any]:
        """Returns the body as an object."""
        content: dict[str, Any] = json.loads(self.body)
        return content

    def header(self, name: str) -> Any:
        """Returns a header that has JSON; None without it."""
        text = self.headers.get(name)
        return None if text is None else json.loads(text)


class Connection:
    """The address of a server, and connections to it. Several threads may use it, and processes that fork."""

    def __init__(self, url: str, key: str | None, timeout: float | None, certificates: str | None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the address is {url!r}; expected http://HOST:PORT or https://HOST:PORT")
        if parts.query or parts.fragment or parts.username or parts.path.strip("/"):
            raise ValueError(f"the address is {url!r}; expected only a scheme, a host and a port")
        if certificates is not None and parts.scheme == "http":
            raise ValueError("certificates are given, but the address begins with http://, not https://")
        try:
            self._port = parts.port
        except ValueError as error:
            raise ValueError(f"the address is {url!r}: {error}") from None
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._host, self._timeout = parts.hostname, timeout
        self._is_safe = parts.scheme == "https"
        self._context = ssl.create_default_context(cafile=certificates) if self._is_safe else None
        self._key = os.environ.get("BATHYAL_KEY") if key is None else key
        self._idle: list[http.client.HTTPConnection] = []
        self._lock, self._process = threading.Lock(), os.getpid()

    def close(self) -> None:
        """Closes the connections that no request uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def get(self, path: str) -> Reply:
        """Sends a GET."""
        return self.send("GET", path)

    def post(self, path: str, content: Mapping[str, Any], timeout: float | None = 0.0) -> dict[str, Any]:
        """Sends JSON to an operation that only reads, or may be done twice; returns its answer."""
        return self.send("POST", path, json.dumps(content).encode(), timeout=timeout).json()

    def change(self, path: str, body: bytes, kind: str = JSON) -> dict[str, Any]:
        """Sends a change. A running server does it once however often it is sent; a restarted one forgets."""
        return self.send(
            "POST", path, body, {"Content-Type": kind, "Idempotency-Key": uuid.uuid4().hex}
        ).json()

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 0.0,
        once: bool = False,
    ) -> Reply:
        """Sends a request, again if the connection fails or the server is busy, and returns the answer.

        ``timeout`` are the most seconds without a byte from the server; None means no limit, and 0 that of the
        connection. With ``once``, it is not sent again after the connection has failed: the server may have done
        what it must not do twice. Raises the exception of a refusal.
        """
        sent = {"Accept": JSON, **({} if body is None else {"Content-Type": JSON}), **(headers or {})}
        if self._key is not None:
            sent["Authorization"] = f"Bearer {self._key}"
        wait, limit = FIRST_WAIT, self._timeout if timeout == 0 else timeout
        attempt = 0
        while True:
            attempt += 1
            is_last = attempt == ATTEMPTS
            # The server may have closed an idle connection.
            connection = self._new(limit) if once else self._taken(limit)
            was_idle = connection.sock is not None
            try:
                reply = self._exchange(connection, method, path, body, sent)
            except TimeoutError:
                raise TimeoutError(f"{self.url}: no answer to {method} {path} in time") from None
            except (OSError, http.client.HTTPException) as error:
                if was_idle:
                    self.close()
                    attempt -= 1
                    continue
                if is_last or once or isinstance(error, ssl.SSLCertVerificationError):
                    raise ConnectionError(f"{self.url}: {error or type(error).__name__}") from error
            else:
                again = self._wait_of(reply)
                if again is None or is_last:
                    return self._checked(reply, path)
                wait = max(wait, again)
            time.sleep(min(wait, MOST_WAIT))
            wait *= 2

    def _wait_of(self, reply: Reply) -> float | None:
        """Returns the seconds after which a request is sent again; None if it is not."""
        stopping = reply.status == http.HTTPStatus.SERVICE_UNAVAILABLE and b'"cancelled"' in reply.body
        if reply.status != http.HTTPStatus.TOO_MANY_REQUESTS and not stopping:
            return None
        given = reply.headers.get("Retry-After", "")
        return float(given) if given.isdigit() else FIRST_WAIT

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> Reply:
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            reply = Reply(answer.status, answer.headers, answer.read())
        except BaseException:
            # Also at Ctrl-C: the rest of an answer would be taken for the next one.
            connection.close()
            raise
        if answer.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append(connection)
        return reply

    def _taken(self, timeout: float | None) -> http.client.HTTPConnection:
        """Returns a connection that no other request uses."""
        with self._lock:
            if self._process != os.getpid():
                # The parent process goes on with its connections.
                self._idle, self._process = [], os.getpid()
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            return self._new(timeout)
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        return connection

    def _new(self, timeout: float | None) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._context)

    def _checked(self, reply: Reply, path: str) -> Reply:
        """Returns an answer, or raises the exception of a refusal."""
        if reply.status < http.HTTPStatus.BAD_REQUEST:
            return reply
        try:
            refusal = reply.json()["error"]
            kind, message = str(refusal["kind"]), str(refusal["message"])
        except (ValueError, KeyError, TypeError):
            text = reply.body[:200].decode("utf-8", "replace")
            raise _bathyal.Error(f"{self.url}{path}: answered with {reply.status}: {text!r}") from None
        if reply.status == http.HTTPStatus.UNAUTHORIZED and self._key is None:
            message += "; give it as key= of bathyal.connect(), or in the variable BATHYAL_KEY"
        is_duplicate = kind == "exists" and path.endswith("/add")
        error = _bathyal.DuplicateIdError if is_duplicate else ERRORS.get(kind, _bathyal.Error)
        raise error(f"{self.url}: {message}")
