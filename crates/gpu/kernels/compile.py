#!/usr/bin/env python3
"""Compile the kernels to PTX with NVRTC, without a toolkit or a card.

NVRTC is installed by pip install nvidia-cuda-nvrtc-cu12==12.2.140.

usage: compile.py [--check]

Writes NAME.ptx beside each NAME.cu. With --check, compares the present files with the compiled ones, and
lists those that differ. The PTX is that of CUDA 12.2 for compute capability 8.0. Any driver from 535 on
compiles it for its card.
"""

import ctypes
import glob
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OPTIONS = ["--gpu-architecture=compute_80", "--fmad=false", "--std=c++17", f"--include-path={HERE}"]


def library():
    """Load NVRTC: the library in the variable NVRTC, or that of the wheel."""
    if "NVRTC" in os.environ:
        return ctypes.CDLL(os.environ["NVRTC"])
    spec = importlib.util.find_spec("nvidia.cuda_nvrtc")
    if spec is None:
        sys.exit("NVRTC is not installed: run pip install nvidia-cuda-nvrtc-cu12==12.2.140")
    folder = next(iter(spec.submodule_search_locations))
    return ctypes.CDLL(glob.glob(os.path.join(folder, "lib", "libnvrtc.so.*"))[0])


def text(nvrtc, program, what):
    """Return the log or the PTX of a program."""
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    out = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, out)
    return out.value.decode()


def fingerprint(path):
    """Return a hash (FNV-1a) of a source and all headers, which a test compares without NVRTC."""
    value = 0xCBF29CE484222325
    for part in (path, *sorted(glob.glob(os.path.join(HERE, "*.h")))):
        with open(part, "rb") as file:
            for byte in file.read():
                value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def ptx(nvrtc, path):
    """Return a line with the fingerprint of a source, and its PTX."""
    program = ctypes.c_void_p()
    with open(path, "rb") as file:
        name = os.path.basename(path).encode()
        made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), file.read(), name, 0, None, None)
    options = [option.encode() for option in OPTIONS]
    if made or nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)):
        sys.exit(f"{path}:\n{text(nvrtc, program, 'ProgramLog')}")
    return f"// of sources {fingerprint(path)}\n{text(nvrtc, program, 'PTX')}"


def main():
    """Compile or check all kernels."""
    nvrtc, differ = library(), []
    for path in sorted(glob.glob(os.path.join(HERE, "*.cu"))):
        made, out = ptx(nvrtc, path), path[: -len("cu")] + "ptx"
        if "--check" in sys.argv[1:]:
            with open(out, encoding="utf-8") as file:
                if file.read() != made:
                    differ.append(out)
            continue
        with open(out, "w", encoding="utf-8") as file:
            file.write(made)
        print(f"{out}: {len(made)} bytes")
    if differ:
        sys.exit(f"not compiled from the present sources: {', '.join(differ)}; run {sys.argv[0]}")


if __name__ == "__main__":
    main()
