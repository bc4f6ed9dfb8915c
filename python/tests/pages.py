"""Runs the blocks of a page of the documentation as a reader does: in order, in one folder.

Comments that readers do not see hold the settings of a page for its test:

``<!-- not run: REASON -->``      before a block that needs something that a test lacks. The block is checked and
                                  counted; the reason names what is missing, and what runs the block or could run it
``<!-- continues: PAGE -->``      the page starts in the folder that another page, in the same folder, has left
``<!-- bucket: NAME -->``         a store with this bucket runs, and environment variables lead to it
``<!-- port: NUMBER -->``         a port at which a program listens; the test replaces it by a free one
``<!-- smaller: SIZE as SIZE -->`` the test replaces the first size by the second one, unless
                                  ``BATHYAL_WHOLE_PAGES`` is set, as in `make soak`
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ports import free_ports

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
"""Every page whose blocks run."""

RUN = ("sh", "python")
COMPILED = "rust"
SHOWN = ("text",)
"""The language of printed output. Other languages are errors."""

WHOLE = "BATHYAL_WHOLE_PAGES" in os.environ
"""True if sizes are not replaced. Read once, because the blocks have their own environment."""

SECONDS = 300
"""Seconds after which a block counts as hanging."""

FENCE = re.compile(r"^```(\S*)$")
COMMENT = re.compile(r"^<!-- (not run|continues|bucket|port|smaller): (.+) -->$")
SIZE = re.compile(r"(?<!\w)(?<!\d\.)\d[\d_]*(?!\w)")
SMALLER = re.compile(r"^([\d_]+) as ([\d_]+)$")


class PageError(Exception):
    """A badly written page, or a block that failed."""


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: pathlib.Path
    line: int
    """The number of its first line of code, counted from 1."""
    language: str
    code: str
    not_run: str | None
    """The reason for which no test runs it, if there is one."""

    @property
    def place(self) -> str:
        """Returns its file and line, in the form that editors understand."""
        return f"{self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page}:{self.line}"


@dataclass
class Page:
    """The blocks of one file, and its settings."""

    path: pathlib.Path
    blocks: list[Block] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    smaller: dict[str, str] = field(default_factory=dict)
    """Sizes that a test replaces, with their replacements."""

    def shortened(self, code: str) -> str:
        """Returns the code of a block with the sizes for tests."""
        if WHOLE:
            return code
        return SIZE.sub(lambda size: self.smaller.get(size[0], size[0]), code)


def read(path: pathlib.Path, text: str | None = None) -> Page:
    """Reads the page at ``path``."""
    page, reason, begun = Page(path), None, None
    code: list[str] = []
    lines = (path.read_text(encoding="utf-8") if text is None else text).splitlines()
    for number, line in enumerate(lines, start=1):
        fence, comment = FENCE.match(line), COMMENT.match(line)
        if begun is not None:
            if line == "```":
                page.blocks.append(Block(path, begun[0], begun[1], "\n".join(code) + "\n", reason))
                begun, reason = None, None
            else:
                code.append(line)
        elif fence:
            begun, code = (number + 1, _language(path, number, fence[1])), []
        elif line.startswith("    ") or line.lstrip().startswith("```"):
            raise PageError(f"{path}:{number}: a block has to be fenced and begin at the margin")
        elif comment and comment[1] == "not run":
            reason = comment[2]
        elif comment and comment[1] == "smaller":
            sizes = SMALLER.match(comment[2])
            if sizes is None:
                raise PageError(f"{path}:{number}: no such comment; {__doc__}")
            page.smaller[sizes[1]] = sizes[2]
        elif comment:
            page.settings[comment[1]] = comment[2]
        elif line.startswith("<!--"):
            raise PageError(f"{path}:{number}: no such comment; {__doc__}")
        elif line and reason is not None:
            raise PageError(f"{path}:{number}: 'not run' stands directly before a block")
    if begun is not None:
        raise PageError(f"{path}:{begun[0]}: the block does not end")
    for size in page.smaller:
        if not any(size in SIZE.findall(block.code) for block in page.blocks):
            raise PageError(f"{path}: no block has the size {size}, which is said to be smaller in tests")
    return page


def _language(path: pathlib.Path, number: int, named: str) -> str:
    language = named.split(",")[0]
    if language not in (*RUN, COMPILED, *SHOWN):
        raise PageError(f"{path}:{number}: a block is one of {', '.join((*RUN, COMPILED, *SHOWN))}")
    return language


class Reader:
    """Runs all blocks of a page with one shell and one Python."""

    def __init__(self, folder: pathlib.Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = dict(environment)
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._groups: list[int] = []

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._names.clear()
        for group in self._groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def run(self, page: Page) -> int:
        """Runs the blocks of ``page`` that can run; returns their number."""
        count = 0
        port = page.settings.get("port")
        # The environment may have it from a page before this one.
        free = str(free_ports(1)[0]) if port else None
        for block in page.blocks:
            if block.language not in RUN or block.not_run:
                continue
            code = page.shortened(block.code)
            code = code.replace(port, free) if port and free else code
            if block.language == "sh":
                self._shell(block, code)
            else:
                self._python(block, code)
            if free and _in_background(code):
                _wait_for(int(free), block)
            count += 1
        return count

    def _shell(self, block: Block, code: str) -> None:
        shown, left = self.folder.parent / "shown", self.folder.parent / "environment"
        script = f"{code}\nenv -0 > {left}\n"
        with open(shown, "wb") as output:
            process = subprocess.Popen(
                [shutil.which("bash") or "bash", "-euo", "pipefail", "-c", script],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            if _in_background(code):
                self._groups.append(process.pid)
            try:
                status = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = None
        if status != 0:
            message = shown.read_text(errors="replace")[-4000:]
            raise PageError(f"{block.place}: the shell ended with {status}\n{block.code}\n{message}")
        entries = left.read_text(errors="surrogateescape").split("\0")
        self.environment = dict(entry.split("=", 1) for entry in entries if "=" in entry)

    def _python(self, block: Block, code: str) -> None:
        os.environ.clear()
        os.environ.update(self.environment)
        # Lines in front, so that tracebacks have the lines of the page.
        compiled = compile("\n" * (block.line - 1) + code, str(block.page), "exec")
        try:
            exec(compiled, self._names)
        except Exception as error:
            raise PageError(f"{block.place}: {type(error).__name__}: {error}\n{block.code}") from error


def _in_background(code: str) -> bool:
    return any(line.endswith(" &") for line in code.splitlines())


def _wait_for(port: int, block: Block) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise PageError(f"{block.place}: nobody listens at port {port}")


def commands(code: str) -> Iterator[tuple[str, set[str]]]:
    """Yields each call of ``bathyal`` in a shell block: its command and its long options."""
    joined = code.replace("\\\n", " ")
    for line in joined.splitlines():
        call = re.match(r"bathyal ([a-z-]+)(.*)", line.split(" #")[0])
        if call:
            yield call[1], set(re.findall(r"(?<=\s)--[a-z][a-z-]*", call[2]))
