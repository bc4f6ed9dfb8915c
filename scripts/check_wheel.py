"""Installs a wheel like a new user and uses it: without Rust, in a new environment and an empty folder.

    python scripts/check_wheel.py target/wheels/bathyal-*.whl     or: make check-wheel

Checks every Python from 3.10 on that is found on this machine, or those that ``--python`` names.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv  # noqa: F401  (fails early on systems that package it separately)
from pathlib import Path

LEAST = (3, 10)
# The first steps of a new user in Python; those with the command are in `check`.
FIRST_STEPS = """
import numpy as np, bathyal
vectors = np.random.default_rng(1).standard_normal((2000, 16), dtype=np.float32)
np.save("base.npy", vectors)
np.save("queries.npy", vectors[:20])
with bathyal.build(vectors, "python.index", progress=False) as index:
    found = index.search(vectors[:20], k=5, recall=0.99)
assert found.ids[:, 0].tolist() == [*range(20)], found.ids
assert not found.distances[:, 0].any(), found.distances
print(bathyal.__version__)
"""


def interpreters():
    """Returns the first Python found of each version from LEAST on."""
    folders = [Path(sys.executable).parent, *map(Path, os.environ.get("PATH", "").split(os.pathsep))]
    folders += sorted((Path.home() / ".pyenv/versions").glob("*/bin"))
    found = {}
    for folder in folders:
        for name in ["python3", *(f"python3.{minor}" for minor in range(LEAST[1], 30)), "python.exe"]:
            python = folder / name
            version = python.is_file() and output_of(python, "import sys; print(*sys.version_info[:2])")
            if version and tuple(map(int, version.split())) >= LEAST:
                found.setdefault(tuple(map(int, version.split())), python)
    return [found[version] for version in sorted(found)]


def output_of(python, code):
    """Returns the output of ``code``, or an empty text if it fails, as shims of version managers may."""
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def check(wheel, python):
    """Installs ``wheel`` for ``python`` and uses it. Returns its version."""
    with tempfile.TemporaryDirectory(prefix="bathyal-wheel-") as folder:
        environment, work = Path(folder, "environment"), Path(folder, "empty")
        work.mkdir()
        subprocess.run([python, "-m", "venv", environment], check=True)
        scripts = environment / ("Scripts" if os.name == "nt" else "bin")
        # Only the environment is on the path: no cargo, no rustc, no compiler.
        kept = {
            name: os.environ[name] for name in os.environ if not re.match("CARGO|RUST|PYTHON|VIRTUAL", name)
        }
        kept["PATH"] = str(scripts)
        for tool in ("cargo", "rustc", "cc"):
            assert shutil.which(tool, path=kept["PATH"]) is None, f"{tool} is in {scripts}"
        inside = scripts / ("python.exe" if os.name == "nt" else "python")

        def run(*command):
            done = subprocess.run(
                [*map(str, command)], env=kept, cwd=work, text=True, encoding="utf-8", capture_output=True
            )
            if done.returncode != 0:
                sys.exit(f"{python}: {' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
            return done.stdout.strip()

        run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        version = run(inside, "-c", FIRST_STEPS)
        command = scripts / ("bathyal.exe" if os.name == "nt" else "bathyal")
        printed = run(command, "--version")
        if printed != f"bathyal {version}" or f"-{version}-" not in wheel.name:
            sys.exit(f"{wheel.name} has version {version}, but its command prints {printed}")
        run(command, "build", "base.npy", "command.index", "--metric", "l2", "--json")
        run(command, "search", "command.index", "queries.npy", "-k", "5", "--json")
        return version


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path, help="the wheel to install")
    parser.add_argument("--python", type=Path, action="append", help="an interpreter (may be repeated)")
    arguments = parser.parse_args()
    wheel = arguments.wheel.resolve()
    if not wheel.is_file():
        sys.exit(f"{arguments.wheel}: not found; make check-wheel builds a wheel")
    pythons = arguments.python or interpreters()
    if not pythons:
        sys.exit(f"no Python from {LEAST[0]}.{LEAST[1]} on was found; name one with --python")
    for python in pythons:
        version = output_of(python, "import platform; print(platform.python_version())")
        print(
            f"{wheel.name}: Python {version}: bathyal {check(wheel, python)} is installed and works",
            flush=True,
        )


if __name__ == "__main__":
    main()
