#!/usr/bin/env python3
"""Makes the PTX of the kernels with NVRTC (pip install nvidia-cuda-nvrtc-cu12==12.2.140): without toolkit or card.

usage: compile.py [--check]

Writes NAME.ptx beside each NAME.cu; with --check compares what is there with what it would write, and says what
differs. PTX of CUDA 12.2 for compute capability 8.0: any driver from 535 on makes code of it for its card.
"""

import ctypes
import glob
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OPTIONS = ["--gpu-architecture=compute_80", "--fmad=false", "--std=c++17", f"--include-path={HERE}"]


def library():
    """NVRTC, from its wheel or from NVRTC in the environment."""
    if "NVRTC" in os.environ:
        return ctypes.CDLL(os.environ["NVRTC"])
    spec = importlib.util.find_spec("nvidia.cuda_nvrtc")
    if spec is None:
        sys.exit("NVRTC is not there: pip install nvidia-cuda-nvrtc-cu12==12.2.140")
    folder = next(iter(spec.submodule_search_locations))
    return ctypes.CDLL(glob.glob(os.path.join(folder, "lib", "libnvrtc.so.*"))[0])


def text(nvrtc, program, what):
    """What NVRTC has to say of a program: its log, or its PTX."""
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    out = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, out)
    return out.value.decode()


def fingerprint(path):
    """A hash (FNV-1a) of what a source is made of: a test without NVRTC compares it."""
    value = 0xCBF29CE484222325
    for part in (path, *sorted(glob.glob(os.path.join(HERE, "*.h")))):
        with open(part, "rb") as file:
            for byte in file.read():
                value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def ptx(nvrtc, path):
    """The PTX of a source, behind a line with its fingerprint."""
    program = ctypes.c_void_p()
    with open(path, "rb") as file:
        name = os.path.basename(path).encode()
        made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), file.read(), name, 0, None, None)
    options = [option.encode() for option in OPTIONS]
    if made or nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)):
        sys.exit(f"{path}:\n{text(nvrtc, program, 'ProgramLog')}")
    return f"// of sources {fingerprint(path)}\n{text(nvrtc, program, 'PTX')}"


def main():
    """Compiles, or checks, all."""
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
        sys.exit(f"not made of their sources: {', '.join(differ)}; run {sys.argv[0]}")


if __name__ == "__main__":
    main()
