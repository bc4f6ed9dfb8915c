"""Hooks of MkDocs that add pages and links to the documentation's site: see mkdocs.yml.

* Pages of the repository outside docs/, such as README.md, which is the first page.
* A reference of the command, generated from its help, and one of the package, generated from its docstrings, so
  that both are always up to date.
* Pages with plots, generated from the records in docs/benchmarks, and links to them from the reports of these
  records.
* Links between all of these. Links to other files of the repository become links to ``repo_url`` if it is set, or
  plain names.
* In ``nav``, ``FOLDER/*`` means the pages of a folder that are not listed elsewhere.
"""

from __future__ import annotations

import ast
import contextlib
import html
import json
import pathlib
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "bench/README.md": "bench.md",
}
"""Pages of the repository outside docs/, with their paths in the site."""
ORIGINS = {page: source for source, page in OUTSIDE.items()}
BENCH = ROOT / "bench"
END = "end of a help text"
HELPER = f"""
import sys
from bathyal import _bathyal
for line in sys.stdin:
    if _bathyal.run_command(["bathyal", *line.split()]) != 0:
        sys.exit("no help for: " + line)
    print({END!r}, flush=True)
"""
"""A program that prints the help of many commands, so that the package is loaded only once."""
COMMAND = "reference/command.md"
PYTHON = "reference/python.md"

LINK = re.compile(
    r"```.*?^```|`[^`\n]*`|(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)", re.S | re.M
)
FENCE = re.compile(r"^```(\w+),\S*$", re.M)
"""The language of a block, followed by attributes for other programs."""
ROLE = re.compile(r":(?:func|class|meth|attr|data|exc|mod):<code>~?([\w.]+)</code>")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expands ``FOLDER/*`` in ``nav``."""
    listed = set(_listed(config.nav))
    config.nav = _expanded(config.nav, listed)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/."""
    made = {page: (ROOT / source).read_text(encoding="utf-8") for source, page in OUTSIDE.items()}
    made |= {COMMAND: command_reference(), PYTHON: python_reference()}
    for records in plotted():
        made[plots_of(f"benchmarks/{records.stem}.md")] = page_with_plots(records)
        # The HTML file that `make bench-report` writes next to the records would have the same URL as the
        # report.
        if written := files.get_file_from_path(f"benchmarks/{records.stem}.html"):
            files.remove(written)
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, config: MkDocsConfig) -> str:
    """Rewrites links to the paths of their targets in the site."""
    uri = page.file.src_uri
    source = ORIGINS.get(uri, f"docs/{uri}")
    if files.get_file_from_path(plots_of(uri)):
        title, _, rest = markdown.partition("\n")
        markdown = f"{title}\n\n[The same with plots]({plots_of(posixpath.basename(uri))})\n{rest}"

    def rewrite(match: re.Match[str]) -> str:
        target = match["target"]
        if target is None or "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        path, _, anchor = target.partition("#")
        target_path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        in_docs = target_path.removeprefix("docs/") if target_path.startswith("docs/") else None
        found = OUTSIDE.get(target_path, in_docs)
        if found and files.get_file_from_path(found):
            to = posixpath.relpath(found, posixpath.dirname(uri) or ".")
            link = f"{match['image']}[{match['text']}]({to}{'#' if anchor else ''}{anchor})"
            # A link to a report with its file name as text gets a link to its plots.
            if match["text"] == posixpath.basename(found) and files.get_file_from_path(plots_of(found)):
                link += f" ([plots]({plots_of(to)}))"
            return link
        # A broken link stays unchanged, so that MkDocs reports it.
        if not (ROOT / target_path).exists():
            return match[0]
        return _source(match["text"], target_path, config.repo_url)

    return FENCE.sub(r"```\1", LINK.sub(rewrite, markdown))


def on_page_content(content: str, page: Page, **_: Any) -> str:
    """Turns roles in docstrings of the package into links."""
    if page.file.src_uri != PYTHON:
        return content
    known = set(re.findall(r'id="(bathyal\.[\w.]+)"', content))

    def rewrite(match: re.Match[str]) -> str:
        name = match[1]
        shown = f"<code>{html.escape(name)}</code>"
        full = name if name.startswith("bathyal.") else f"bathyal.{name}"
        if full not in known:
            # A method may be named without its class.
            inside = [one for one in known if one.endswith(f".{name}")]
            full = inside[0] if len(inside) == 1 else ""
        return f'<a href="#{full}">{shown}</a>' if full else shown

    return ROLE.sub(rewrite, content)


def _source(text: str, path: str, repository: str | None) -> str:
    if repository:
        return f"[{text}]({repository.rstrip('/')}/blob/main/{path})"
    return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"


def _listed(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for inside in nav.values():
            yield from _listed(inside)
    else:
        for inside in nav or []:
            yield from _listed(inside)


def _expanded(nav: Any, listed: set[str]) -> Any:
    if isinstance(nav, dict):
        return {title: _expanded(inside, listed) for title, inside in nav.items()}
    if not isinstance(nav, list):
        return nav
    found: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and entry.endswith("*"):
            pages = sorted((ROOT / "docs").glob(f"{entry}.md"))
            names = [page.relative_to(ROOT / "docs").as_posix() for page in pages]
            found += [name for name in names if name not in listed]
        else:
            found.append(_expanded(entry, listed))
    return found


def plots_of(report: str) -> str:
    """Returns the path of the page with plots: ``benchmarks/plots/sift.html`` for ``benchmarks/sift.md``."""
    folder, name = posixpath.split(report)
    return posixpath.join(folder, "plots", f"{name.removesuffix('.md')}.html")


def plotted() -> list[pathlib.Path]:
    """Returns the records in docs/benchmarks that get a page with plots: those of suites and of
    `bench/changing.py`.
    """
    return [path for path in sorted((ROOT / "docs" / "benchmarks").glob("*.jsonl")) if _has_plots(path)]


def _has_plots(records: pathlib.Path) -> bool:
    with records.open(encoding="utf-8") as lines:
        first = json.loads(next(lines))
    return records.stem == "changing" or (first.get("kind") == "run" and "name" in first["suite"])


def page_with_plots(records: pathlib.Path) -> str:
    """Returns the HTML page that `make bench-report` or `bench/changing.py` would write for records."""
    if str(BENCH) not in sys.path:
        sys.path.append(str(BENCH))
    try:
        from bathyal_bench import page, points
        from bathyal_bench.changing import report
    except ImportError as error:
        raise PluginError(f"{error}, which plots need; `make site` installs it first") from error
    read = points.read_records(records)
    return report.page(read) if records.stem == "changing" else page.page(read)


def command_reference() -> str:
    """Generates the reference of the command from its help."""
    parts = [
        "# The command",
        "Every page of help of `bathyal`, as the command prints it: `bathyal COMMAND --help`. The [guide]"
        "(../guide/README.md) has examples that run.",
    ]
    call = [sys.executable, "-c", HELPER]
    with subprocess.Popen(
        call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT / "docs"
    ) as helper:
        for words, text in _helps(helper, ()):
            name = " ".join(("bathyal", *words))
            parts.append(
                f"{'#' * min(2 + max(len(words) - 1, 0), 4)} {name}\n\n```text\n{text.rstrip()}\n```"
            )
    return "\n\n".join(parts) + "\n"


def _helps(helper: subprocess.Popen[str], words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields the help of a command and of its subcommands, from a process that runs ``HELPER``."""
    assert helper.stdin is not None and helper.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        print(*words, "--help", file=helper.stdin, flush=True)
    help_text = ""
    for line in iter(helper.stdout.readline, f"{END}\n"):
        if not line:
            raise PluginError(
                f"`bathyal {' '.join(words)} --help` failed, so the reference of the command cannot be generated; "
                "`make site` installs the package first"
            )
        help_text += line
    yield words, help_text
    commands = re.search(r"^Commands:\n(.*?)\n\n", help_text, re.S | re.M)
    for subcommand in re.findall(r"^  ([a-z][a-z0-9-]*) ", commands[1] if commands else "", re.M):
        if subcommand != "help":
            yield from _helps(helper, (*words, subcommand))


def python_reference() -> str:
    """Generates the reference of the package from its docstrings."""
    tree = ast.parse((ROOT / "python" / "bathyal" / "__init__.py").read_text(encoding="utf-8"))
    names: list[str] = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    functions = [name for name in names if name[0].islower()]
    classes = [name for name in names if name[0].isupper()]
    parts = [
        "# The Python package",
        "Every public name of `bathyal`. The examples run with the package's tests. The [guide]"
        "(../guide/README.md) goes from task to task.",
    ]
    parts += [f"::: bathyal.{name}" for name in functions + classes]
    return "\n\n".join(parts) + "\n"
