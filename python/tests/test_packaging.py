"""Files for those who run a server: the dashboard shows counters that exist, and the unit starts a server."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import urllib.request

import pytest

import serving

PACKAGING = pathlib.Path(__file__).parents[2] / "packaging"
METRIC = re.compile(r"\bbathyal_[a-z_]+\b")


@pytest.fixture
def served(tmp_path):
    """A running server."""
    with serving.serving(tmp_path) as running:
        yield running


def test_the_dashboard_shows_counters_that_exist(served):
    api, metrics, key = served.api, served.metrics, served.key
    vectors = [{"name": "v", "dim": 2, "element": "f32", "metric": "l2"}]
    body = json.dumps({"name": "docs", "schema": {"id": "u64", "vectors": vectors}}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"http://{api}/v1/collections", body, headers)).close()
    with urllib.request.urlopen(f"http://{metrics}/metrics") as answer:
        exposed = set(METRIC.findall(answer.read().decode()))
    dashboard = json.loads((PACKAGING / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    shown = {name for expression in expressions for name in METRIC.findall(expression)}
    assert len(shown) >= 10
    assert shown <= exposed


def test_the_unit_is_valid(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed; it checks packaging/bathyal.service where it is")
    unit = (PACKAGING / "bathyal.service").read_text()
    # The program is where this test has it.
    assert "ExecStart=/usr/local/bin/bathyal serve " in unit
    path = tmp_path / "bathyal.service"
    path.write_text(unit.replace("/usr/local/bin/bathyal", str(serving.COMMAND)))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False
    )
    # It reports other units of the machine as well.
    assert path.name not in checked.stderr
