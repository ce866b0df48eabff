"""Triton's kernels without a GPU: run by its interpreter in a process of their own, and compiled for GPUs that are
not there."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="the package triton is not installed"
)


def found_by(file: str) -> dict:
    "The last line that a file of tests prints when it runs under the interpreter, which is JSON."
    if find_spec("triton") is None:
        pytest.skip("the package triton is not installed")
    if tuple(map(int, version("triton").split(".")[:2])) < (3, 7):
        pytest.skip("the interpreter of Triton before 3.7 does not know NumPy 2.4")
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, file], env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def check_compiled(kernel, arguments: dict, fixed: dict, capability: int, most: int, **options):
    """Compile a kernel for a GPU: name → type of its arguments, name → value of what is fixed.

    Its shared memory is at most so many KB; returns the PTX."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(
        fn=kernel,
        signature=arguments | dict.fromkeys(fixed, "constexpr"),
        constexprs=fixed,
        attrs={
            (i,): [["tt.divisibility", 16]] for i, t in enumerate(arguments.values()) if t[0] == "*"
        },
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    assert compiled.metadata.shared <= most * 1024
    return compiled.asm["ptx"]


# the instruction of the matrix unit, of Ampere and of Hopper
MATRIX_UNIT = {80: "mma.sync", 90: "wgmma.mma_async"}
# capability, KB of shared memory: Ampere has less
GPUS = [(80, 99), (90, 227)]
