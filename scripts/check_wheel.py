"""Installs a wheel as a stranger would, and uses it: a machine without Rust, a fresh environment, an empty folder.

    python scripts/check_wheel.py target/wheels/bathyal-*.whl     or: make check-wheel

Each Python from 3.10 up that is found on this machine gets its turn, or those that ``--python`` names.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv  # noqa: F401  (says at once where this system has split it off)
from pathlib import Path

LEAST = (3, 10)
# What a newcomer does first, in Python and then by the command.
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
    """A Python of each version from LEAST on, the first that is found."""
    folders = [Path(sys.executable).parent, *map(Path, os.environ.get("PATH", "").split(os.pathsep))]
    folders += sorted((Path.home() / ".pyenv/versions").glob("*/bin"))
    found = {}
    for folder in folders:
        for name in ["python3", *(f"python3.{minor}" for minor in range(LEAST[1], 30)), "python.exe"]:
            python = folder / name
            version = python.is_file() and answer(python, "import sys; print(*sys.version_info[:2])")
            if version and tuple(map(int, version.split())) >= LEAST:
                found.setdefault(tuple(map(int, version.split())), python)
    return [found[version] for version in sorted(found)]


def answer(python, code):
    """What ``code`` prints, or nothing where it fails: shims of version managers do."""
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def check(wheel, python):
    """Installs ``wheel`` for ``python`` and uses it; the version that it says."""
    with tempfile.TemporaryDirectory(prefix="bathyal-wheel-") as folder:
        environment, work = Path(folder, "environment"), Path(folder, "empty")
        work.mkdir()
        subprocess.run([python, "-m", "venv", environment], check=True)
        scripts = environment / ("Scripts" if os.name == "nt" else "bin")
        # Nothing but the environment is on the path: no cargo, no rustc, no compiler.
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
        said = run(command, "--version")
        if said != f"bathyal {version}" or f"-{version}-" not in wheel.name:
            sys.exit(f"{wheel.name} says {version}, and its command says {said}")
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
        sys.exit(f"{arguments.wheel}: there is no such wheel; make check-wheel builds one")
    pythons = arguments.python or interpreters()
    if not pythons:
        sys.exit(f"no Python from {LEAST[0]}.{LEAST[1]} up was found; name one by --python")
    for python in pythons:
        version = answer(python, "import platform; print(platform.python_version())")
        print(
            f"{wheel.name}: Python {version}: bathyal {check(wheel, python)} is installed and answers",
            flush=True,
        )


if __name__ == "__main__":
    main()
