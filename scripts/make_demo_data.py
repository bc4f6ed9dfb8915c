#!/usr/bin/env python3
"""Makes testdata/glove-words, the data of the demo, from GloVe vectors of the most frequent words.

    python3 scripts/make_demo_data.py SOURCE [TARGET]

SOURCE holds vectors.fbin (u32 count, u32 dim, rows of f32) and words.txt (one word per line, in the order of
the rows). The vectors are rounded to f16, which halves their size and changes no component by more than 1
part in 2,048; the words are copied. Needs only Python.
"""

import argparse
import array
import pathlib
import shutil
import struct
import sys

TARGET = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "glove-words"
HEADER = struct.Struct("<II")
LARGEST_F16 = 65504.0


def read_f32(path):
    """Returns (count, dim, components) of an .fbin file. Exits with an error if it is damaged."""
    content = path.read_bytes()
    if len(content) < HEADER.size:
        sys.exit(f"{path}: has {len(content)} bytes, but its header needs {HEADER.size}")
    count, dim = HEADER.unpack_from(content)
    expected = HEADER.size + 4 * count * dim
    if len(content) != expected:
        sys.exit(f"{path}: has {len(content)} bytes, but {expected} by its header")
    components = array.array("f", content[HEADER.size :])
    if sys.byteorder == "big":
        components.byteswap()
    if not all(-LARGEST_F16 <= value <= LARGEST_F16 for value in components):
        sys.exit(f"{path}: holds a value outside the range of f16")
    return count, dim, components


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=pathlib.Path, help="folder with vectors.fbin and words.txt")
    parser.add_argument("target", type=pathlib.Path, nargs="?", default=TARGET)
    arguments = parser.parse_args()

    count, dim, components = read_f32(arguments.source / "vectors.fbin")
    words = (arguments.source / "words.txt").read_text(encoding="utf-8").splitlines()
    if len(words) != count:
        sys.exit(f"{arguments.source}: {len(words)} words, but {count} vectors")

    arguments.target.mkdir(parents=True, exist_ok=True)
    vectors = arguments.target / "vectors.f16bin"
    vectors.write_bytes(HEADER.pack(count, dim) + struct.pack(f"<{count * dim}e", *components))
    shutil.copyfile(arguments.source / "words.txt", arguments.target / "words.txt")
    print(f"{vectors}: {count} x {dim} f16, {vectors.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
