"""What the documentation's site has besides the pages of docs/, as hooks of MkDocs: see mkdocs.yml.

* Pages of the repository that lie outside docs/, such as README.md, which is the first page.
* A reference of the command, made of its own help, and one of the package, made of its own text, so that neither is
  ever older than what it describes.
* Pages with plots, made of the records of docs/benchmarks, and links to them from the reports of the same records.
* Links between all of these. What is no page is named, and linked where ``repo_url`` says where the sources are.
* In ``nav``, ``FOLDER/*`` stands for the pages of a folder that are named nowhere else.
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
"""Where pages of the repository that are not in docs/ are in the site."""
ORIGINS = {there: here for here, there in OUTSIDE.items()}
BENCH = ROOT / "bench"
END = "end of a help"
HELPER = f"""
import sys
from bathyal import _bathyal
for line in sys.stdin:
    if _bathyal.run_command(["bathyal", *line.split()]) != 0:
        sys.exit("no such help: " + line)
    print({END!r}, flush=True)
"""
"""A process that tells the help of many commands: of the command itself, each would load the package again."""
COMMAND = "reference/command.md"
PYTHON = "reference/python.md"

LINK = re.compile(
    r"```.*?^```|`[^`\n]*`|(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)", re.S | re.M
)
FENCE = re.compile(r"^```(\w+),\S*$", re.M)
"""The language of a block, and what other programs want to know of it."""
ROLE = re.compile(r":(?:func|class|meth|attr|data|exc|mod):<code>~?([\w.]+)</code>")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Writes out what ``FOLDER/*`` of ``nav`` stands for."""
    named = set(_named(config.nav))
    config.nav = _written_out(config.nav, named)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/."""
    made = {there: (ROOT / here).read_text(encoding="utf-8") for here, there in OUTSIDE.items()}
    made |= {COMMAND: command_reference(), PYTHON: python_reference()}
    for records in plotted():
        made[plots_of(f"benchmarks/{records.stem}.md")] = page_with_plots(records)
        # What `make bench-report` writes beside the records would have the same place in the site as the report.
        if written := files.get_file_from_path(f"benchmarks/{records.stem}.html"):
            files.remove(written)
    for there, content in made.items():
        files.append(File.generated(config, there, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, config: MkDocsConfig) -> str:
    """Leads links to where their targets are in the site."""
    there = page.file.src_uri
    here = ORIGINS.get(there, f"docs/{there}")
    if files.get_file_from_path(plots_of(there)):
        title, _, rest = markdown.partition("\n")
        markdown = f"{title}\n\n[The same with plots]({plots_of(posixpath.basename(there))})\n{rest}"

    def led(match: re.Match[str]) -> str:
        target = match["target"]
        if target is None or "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        path, _, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        found = OUTSIDE.get(place, place.removeprefix("docs/") if place.startswith("docs/") else None)
        if found and files.get_file_from_path(found):
            to = posixpath.relpath(found, posixpath.dirname(there) or ".")
            link = f"{match['image']}[{match['text']}]({to}{'#' if anchor else ''}{anchor})"
            # A report that is listed by its file's name is followed by its plots.
            if match["text"] == posixpath.basename(found) and files.get_file_from_path(plots_of(found)):
                link += f" ([plots]({plots_of(to)}))"
            return link
        # A dead end stays one, which MkDocs complains of.
        return _source(match["text"], place, config.repo_url) if (ROOT / place).exists() else match[0]

    return FENCE.sub(r"```\1", LINK.sub(led, markdown))


def on_page_content(content: str, page: Page, **_: Any) -> str:
    """Makes links of the names that the package's own text speaks of."""
    if page.file.src_uri != PYTHON:
        return content
    known = set(re.findall(r'id="(bathyal\.[\w.]+)"', content))

    def led(match: re.Match[str]) -> str:
        name = match[1]
        shown = f"<code>{html.escape(name)}</code>"
        full = name if name.startswith("bathyal.") else f"bathyal.{name}"
        if full not in known:
            # A method names another one of its class by its name alone.
            inside = [one for one in known if one.endswith(f".{name}")]
            full = inside[0] if len(inside) == 1 else ""
        return f'<a href="#{full}">{shown}</a>' if full else shown

    return ROLE.sub(led, content)


def _source(text: str, place: str, repository: str | None) -> str:
    if repository:
        return f"[{text}]({repository.rstrip('/')}/blob/main/{place})"
    return f"`{place}`" if text.strip("`") == place else f"{text} (`{place}`)"


def _named(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for inside in nav.values():
            yield from _named(inside)
    else:
        for inside in nav or []:
            yield from _named(inside)


def _written_out(nav: Any, named: set[str]) -> Any:
    if isinstance(nav, dict):
        return {title: _written_out(inside, named) for title, inside in nav.items()}
    if not isinstance(nav, list):
        return nav
    found: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and entry.endswith("*"):
            pages = sorted((ROOT / "docs").glob(f"{entry}.md"))
            names = [page.relative_to(ROOT / "docs").as_posix() for page in pages]
            found += [name for name in names if name not in named]
        else:
            found.append(_written_out(entry, named))
    return found


def plots_of(report: str) -> str:
    """Where the page with plots of a report is: ``benchmarks/plots/sift.html`` for ``benchmarks/sift.md``."""
    folder, name = posixpath.split(report)
    return posixpath.join(folder, "plots", f"{name.removesuffix('.md')}.html")


def plotted() -> list[pathlib.Path]:
    """The records of docs/benchmarks that become pages with plots: those of suites and of `bench/changing.py`."""
    return [path for path in sorted((ROOT / "docs" / "benchmarks").glob("*.jsonl")) if _has_plots(path)]


def _has_plots(records: pathlib.Path) -> bool:
    with records.open(encoding="utf-8") as lines:
        first = json.loads(next(lines))
    return records.stem == "changing" or (first.get("kind") == "run" and "name" in first["suite"])


def page_with_plots(records: pathlib.Path) -> str:
    """What `make bench-report` or `bench/changing.py` writes as the HTML of records."""
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
    """What the command says of itself."""
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
    """The help of a command, then of those under it, asked of a process of ``HELPER``."""
    assert helper.stdin is not None and helper.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        print(*words, "--help", file=helper.stdin, flush=True)
    told = ""
    for line in iter(helper.stdout.readline, f"{END}\n"):
        if not line:
            raise PluginError(
                f"`bathyal {' '.join(words)} --help` failed, so that there is no reference of the command; "
                "`make site` installs the package first"
            )
        told += line
    yield words, told
    listed = re.search(r"^Commands:\n(.*?)\n\n", told, re.S | re.M)
    for under in re.findall(r"^  ([a-z][a-z0-9-]*) ", listed[1] if listed else "", re.M):
        if under != "help":
            yield from _helps(helper, (*words, under))


def python_reference() -> str:
    """What the package's public names say of themselves."""
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
