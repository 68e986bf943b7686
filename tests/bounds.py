"""Kernels in Triton's interpreter read and write within the tensors that they are given, or their test fails.

On a GPU a read beyond a tensor mostly finds other memory of the process: nothing is said, and now and then a run dies.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from torch import Tensor


def _extent(tensor: Tensor) -> tuple[int, int]:
    """From which address to which, the latter not included, elements of a tensor lie."""
    if not tensor.numel():
        return tensor.data_ptr(), tensor.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _tensors(arguments: Any) -> Iterator[Tensor]:
    for one in arguments:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, tuple):
            yield from _tensors(one)


@contextmanager
def checked() -> Iterator[None]:
    """In here a kernel that reads or writes beyond its tensors raises an IndexError, which names it."""
    from triton.runtime import interpreter

    kernel, starts, ends = "", np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    call, load, store = executor.__call__, builder.create_masked_load, builder.create_masked_store
    add, swap = builder.create_atomic_rmw, builder.create_atomic_cas

    def launched(self: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal kernel, starts, ends
        given = sorted(_extent(tensor) for tensor in _tensors((*arguments, *named.values())))
        kernel, starts = self.fn.__name__, np.array([first for first, _ in given], np.uint64)
        ends = np.maximum.accumulate(np.array([end for _, end in given], np.uint64))  # one may lie within another
        return call(self, *arguments, **named)

    def check(pointers: Any, mask: Any, what: str) -> None:
        width = max(1, pointers.dtype.element_ty.primitive_bitwidth // 8)
        address = np.asarray(pointers.data).astype(np.uint64)
        if mask is not None:  # a mask is a handle too, which is true where all of it is
            address = address[np.broadcast_to(np.asarray(mask.data).astype(bool), address.shape)]
        address = address.ravel()
        owner = np.searchsorted(starts, address, side="right") - 1
        beyond = (owner < 0) | (address + np.uint64(width) > ends[owner.clip(0)])
        if beyond.any():
            raise IndexError(f"{kernel} {what} beyond its tensors: {beyond.sum()} of {beyond.size} elements")

    def loads(self: Any, ptrs: Any, mask: Any, *rest: Any) -> Any:
        check(ptrs, mask, "reads")
        return load(self, ptrs, mask, *rest)

    def stores(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        check(ptrs, mask, "writes")
        return store(self, ptrs, value, mask, *rest)

    def adds(self: Any, op: Any, ptr: Any, value: Any, mask: Any, *rest: Any) -> Any:
        check(ptr, mask, "updates")
        return add(self, op, ptr, value, mask, *rest)

    def swaps(self: Any, ptr: Any, *rest: Any) -> Any:
        check(ptr, None, "updates")
        return swap(self, ptr, *rest)

    replaced: dict[str, Any] = {"create_masked_load": loads, "create_masked_store": stores}
    replaced |= {"create_atomic_rmw": adds, "create_atomic_cas": swaps}
    with patch.object(executor, "__call__", launched), patch.multiple(builder, **replaced):
        yield
