#!/usr/bin/env bash
# Says which tools are missing before anything is compiled: `check_tools.sh build` for the package, `check_tools.sh test` for
# the tests, which compile C++ besides. PYTHON, CARGO, CC and CXX name others than the usual ones.
set -uo pipefail

python=${PYTHON:-python3} cargo=${CARGO:-cargo} cc=${CC:-cc} cxx=${CXX:-c++}
# The least version of Rust; `rust-version` in Cargo.toml.
rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
missing=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

lack() {
    printf 'missing: %s\n' "$1" >&2
    missing=1
}

# compiles COMPILER LANGUAGE: whether it makes a program that runs, for which the headers of the C library have to be there.
compiles() {
    printf '#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n' >"$work/program.c"
    "$1" -x "$2" "$work/program.c" -o "$work/program" 2>"$work/said" && "$work/program"
}

version=$("$cargo" --version 2>/dev/null | sed -n 's/^cargo \([0-9]*\.[0-9]*\).*/\1/p')
if [ -z "$version" ]; then
    lack "Rust $rust or later ($cargo --version fails): https://rustup.rs installs it"
elif [ "$(printf '%s\n%s\n' "$rust" "$version" | sort -V | head -n 1)" != "$rust" ]; then
    lack "Rust $rust or later ($cargo is of $version): \`rustup update\`, or https://rustup.rs instead of the system's package"
fi
compiles "$cc" c || lack "a C compiler that makes programs ($cc does not)"
if [ "${1:-build}" = test ]; then
    compiles "$cxx" c++ || lack "a C++ compiler that makes programs ($cxx does not), which the tests need"
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    lack "Python 3.10 or later ($python is none): name another one with \`make PYTHON=python3.12 ...\`"
elif ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    lack "Python's venv ($python -c 'import venv, ensurepip' fails)"
fi

if [ $missing = 1 ]; then
    cat >&2 <<'END'
Debian, Ubuntu:  sudo apt install make g++ python3-venv curl
Fedora:          sudo dnf install make gcc-c++ python3 curl
Rust:            curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh
END
    exit 1
fi
