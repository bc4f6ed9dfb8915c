"""The hooks of the documentation's site. `make site` runs these tests, because it installs what they need."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

mkdocs = pytest.importorskip("mkdocs", reason="`make site` installs MkDocs")

from mkdocs.structure.files import File, Files  # noqa: E402

import site_hooks  # noqa: E402

PAGES = {
    "index.md",
    "architecture.md",
    "guide/README.md",
    "guide/gpu.md",
    "decisions/gpu.md",
    "benchmarks/h100.md",
    "benchmarks/plots/sift.html",
    "benchmarks/sift.md",
}
FILES: Any = SimpleNamespace(get_file_from_path=lambda path: path if path in PAGES else None)


def led(text: str, there: str, repository: str | None = None) -> str:
    page: Any = SimpleNamespace(file=SimpleNamespace(src_uri=there))
    config: Any = SimpleNamespace(repo_url=repository)
    return site_hooks.on_page_markdown(text, page, FILES, config)


@pytest.mark.parametrize(
    ("there", "text", "expected"),
    [
        ("index.md", "[a](docs/guide/gpu.md#measuring)", "[a](guide/gpu.md#measuring)"),
        ("index.md", "![a](docs/benchmarks/plots/sift.html)", "![a](benchmarks/plots/sift.html)"),
        (
            "index.md",
            "[sift.md](docs/benchmarks/sift.md)",
            "[sift.md](benchmarks/sift.md) ([plots](benchmarks/plots/sift.html))",
        ),
        ("index.md", "[a run](docs/benchmarks/sift.md)", "[a run](benchmarks/sift.md)"),
        ("index.md", "[h100.md](docs/benchmarks/h100.md)", "[h100.md](benchmarks/h100.md)"),
        ("benchmarks/sift.md", "# A\n\nText\n", "# A\n\n[The same with plots](plots/sift.html)\n\nText\n"),
        ("benchmarks/h100.md", "# A\n\nText\n", None),
        ("decisions/gpu.md", "[map](../../ARCHITECTURE.md)", "[map](../architecture.md)"),
        ("guide/gpu.md", "[why](../decisions/gpu.md)", "[why](../decisions/gpu.md)"),
        ("architecture.md", "[`x`](docs/decisions/gpu.md)", "[`x`](decisions/gpu.md)"),
        ("index.md", "[here](#measured), [there](https://example.org/a.md)", None),
        ("index.md", "`[a](docs/guide/gpu.md)`", None),
        ("index.md", "```sh\n[a](docs/guide/gpu.md)\n```\n", None),
        ("index.md", "see [LICENSE](LICENSE)", "see `LICENSE`"),
        ("guide/gpu.md", "[the kernels](../../crates/gpu)", "the kernels (`crates/gpu`)"),
        ("index.md", "[gone](docs/gone.md)", None),
        ("index.md", "```rust,no_run\nx\n```\n", "```rust\nx\n```\n"),
    ],
)
def test_links_lead_to_pages_of_the_site(there: str, text: str, expected: str | None) -> None:
    assert led(text, there) == (text if expected is None else expected)


def test_sources_are_linked_where_they_can_be_had() -> None:
    found = led("[LICENSE](LICENSE)", "index.md", "https://example.org/bathyal/")
    assert found == "[LICENSE](https://example.org/bathyal/blob/main/LICENSE)"


def test_a_folder_in_the_navigation_includes_its_other_pages() -> None:
    config: Any = SimpleNamespace(nav=[{"Guide": ["guide/README.md", "guide/*"]}, "index.md"])
    (guide, index) = site_hooks.on_config(config).nav
    assert index == "index.md"
    assert guide["Guide"].count("guide/README.md") == 1
    assert {"guide/gpu.md", "guide/getting-started.md"} < set(guide["Guide"])


def test_the_reference_has_every_command_and_every_name() -> None:
    import bathyal

    report = site_hooks.command_reference()
    for name in ("build", "search", "collection create"):
        assert f"bathyal {name}\n\n```text" in report
    assert "\n## bathyal\n" in report and "--search-list" in report
    names = set(site_hooks.python_reference().split("::: bathyal.")[1:])
    assert {name.strip() for name in names} == set(bathyal.__all__) - {"__version__"}


def test_records_that_can_be_drawn_become_pages_with_plots() -> None:
    names = {records.stem for records in site_hooks.plotted()}
    assert len(names) > 15 and {"changing", "sift", "ratio-hog"} < names
    assert not names & {"cloud-sift", "growth", "h100-sift"}
    (changing,) = (records for records in site_hooks.plotted() if records.stem == "changing")
    read = [json.loads(line) for line in changing.read_text(encoding="utf-8").splitlines()]
    assert site_hooks.page_with_plots(changing).count("<svg") == len({one["data"] for one in read})


def test_plots_do_not_take_the_place_of_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_hooks, "command_reference", str)
    monkeypatch.setattr(site_hooks, "page_with_plots", lambda records: f"plots of {records.stem}")
    plugins = SimpleNamespace(_current_plugin="hooks")
    config: Any = SimpleNamespace(site_dir="site", use_directory_urls=False, plugins=plugins)
    # `make bench-report` has written one there.
    files = Files([File.generated(config, f"benchmarks/sift.{kind}", content="") for kind in ("md", "html")])
    site_hooks.on_files(files, config)
    places = [file.dest_uri for file in files]
    assert len(places) == len(set(places))
    made = files.get_file_from_path("benchmarks/plots/sift.html")
    assert made is not None and made.content_string == "plots of sift"


def test_a_help_that_fails_stops_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_hooks, "HELPER", site_hooks.HELPER.replace('"bathyal"', '"bathyal", "nothing"'))
    with pytest.raises(site_hooks.PluginError, match="`make site` installs the package"):
        site_hooks.command_reference()


def test_names_in_the_packages_own_text_are_links() -> None:
    page: Any = SimpleNamespace(file=SimpleNamespace(src_uri=site_hooks.PYTHON))
    text = '<h2 id="bathyal.build"></h2><h3 id="bathyal.Index.search"></h3>'
    roles = ":func:<code>build</code> :meth:<code>search</code> :exc:<code>OSError</code>"
    linked = (
        '<a href="#bathyal.build"><code>build</code></a> <a href="#bathyal.Index.search"><code>search</code></a> '
        "<code>OSError</code>"
    )
    assert site_hooks.on_page_content(text + roles, page) == text + linked
    page.file.src_uri = "guide/gpu.md"
    assert site_hooks.on_page_content(roles, page) == roles


def test_a_broken_link_stops_the_build(tmp_path: pathlib.Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A\n\n[gone](gone.md) and [nowhere](#nowhere)\n")
    text = (site_hooks.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    checks = text[text.index("validation:") : text.index("nav:")]
    (tmp_path / "mkdocs.yml").write_text(f"site_name: A\n{checks}")
    call = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "gone.md" in done.stderr and "#nowhere" in done.stderr
