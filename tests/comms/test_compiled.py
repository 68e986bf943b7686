"""The kernels of large teams compile for a GPU, without one: the interpreter is less strict than the compiler."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from devices import MISSING, TRITON
from mast_swarm.kernels import INTERPRETED

pytestmark = [
    pytest.mark.skipif(not TRITON, reason=MISSING),
    pytest.mark.skipif(INTERPRETED, reason="this process interprets kernels"),
]

LONG, WHOLE, FLOAT, DOUBLE, BYTE = "*i64", "*i32", "*fp32", "*fp64", "*u8"
LISTS = {"COLUMNS": 512, "num_warps": 4}
ATTEND = [LONG, FLOAT, WHOLE, LONG, LONG]
TAIL = ["i32"] * 5 + ["fp32", "fp32"]
SIZES = {"HEADS": 4, "D": 64, "LEVELS": 8, "QUERIES": 64, "KEYS": 32, "num_warps": 4}
KERNELS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "near_kernels._meet": (
        [LONG, LONG, BYTE, WHOLE, LONG, WHOLE, DOUBLE, DOUBLE, DOUBLE, LONG, WHOLE, LONG, WHOLE, *["i32"] * 5],
        {"LOSSY": True, "STEPS": 10, **LISTS},
    ),
    "near_kernels._distinct": ([WHOLE, LONG, WHOLE, WHOLE, WHOLE, WHOLE, "i32", "i32"], {"BLOCK": 16, "num_warps": 1}),
    "near_kernels._merge": (
        [WHOLE, LONG, LONG, WHOLE, WHOLE, LONG, WHOLE, WHOLE, WHOLE, LONG, LONG, "i32", "i32", "i32"],
        {"LAYERS": 2, "BLOCK": 16, **LISTS},
    ),
    "near_kernels._keep": (
        [WHOLE, LONG, DOUBLE, DOUBLE, DOUBLE, WHOLE, LONG, WHOLE, *["i32"] * 6],
        {"LAYERS": 2, **LISTS},
    ),
    "near_kernels._mark": ([WHOLE, LONG, BYTE, *["i32"] * 4], {"LAYERS": 2, **LISTS}),
    "near_kernels._hold": (
        [WHOLE, LONG, BYTE, FLOAT, LONG, LONG, WHOLE, BYTE, "i32", "i32", "i32", "fp32", "i32"],
        {"WINDOWED": True, **LISTS},
    ),
    "wide_kernels._further": ([LONG, LONG, FLOAT, LONG, WHOLE, "i32", "i32", "i32", "fp32"], {"FRONT": 8, **LISTS}),
    "wide_kernels._attend": (["*bf16", "*bf16", *ATTEND, "*bf16", *TAIL], {"FIRST": False, **SIZES}),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles_for_a_gpu(name: str) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module, kernel = name.split(".")
    function = getattr(importlib.import_module(f"mast_swarm.comms.{module}"), kernel)
    types, given = KERNELS[name]
    options = {"num_warps": given["num_warps"], "enable_fp_fusion": False}
    constants = {key: value for key, value in given.items() if key != "num_warps"}
    rest = iter(types)
    signature = {arg: "constexpr" if arg in constants else next(rest) for arg in function.arg_names}
    assert next(rest, None) is None  # as many as it takes
    source = ASTSource(function, signature, {(function.arg_names.index(k),): v for k, v in constants.items()})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert made.asm["ptx"] and made.metadata.shared < 100_000
