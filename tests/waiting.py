"""Where work would wait for a GPU, found without one.

A CUDA graph holds no step that waits: none that reads a number on the host, that sends one to the device, or whose
result is as large as the values say. `unwaiting` refuses them all. On a GPU torch does that by itself; elsewhere the
CPU stands for the GPU (see `mast_swarm.kernels`), and two modes of torch look at every call and every operation.
"""

from __future__ import annotations

import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mast_swarm import kernels

_CALLS = {  # from or to the host: on the CPU most of these are no operation, so the call itself is looked at
    "item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "__contains__",
    "tensor", "as_tensor", "from_numpy", "asarray",
}  # fmt: skip
_OPERATIONS = {  # read values on the host, or their results are as large as the values say
    "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "bincount", "_unique2", "unique_dim",
    "unique_consecutive", "lift_fresh", "lift_fresh_copy",
}  # fmt: skip
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}


class Waits(AssertionError):
    """What would have waited for the GPU."""


class _Calls(TorchFunctionMode):
    def __init__(self, waits: Callable[[str], None]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _CALLS and not (name == "as_tensor" and isinstance(args[0], Tensor)):
            self.waits(f"{name}: goes between host and device")
        if name == "to" and any(str(leaf) == "cpu" for leaf in (*args[1:], kwargs.get("device"))):
            self.waits("to(cpu): goes between host and device")
        return func(*args, **kwargs)


class _Operations(TorchDispatchMode):
    def __init__(self, waits: Callable[[str], None]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in _OPERATIONS:
            self.waits(f"{func}: reads values on the host")
        if name == "repeat_interleave" and kwargs.get("output_size") is None:
            self.waits(f"{func}: adds up how long its result gets")
        if name in _INDEXING and any(t.dtype in (torch.bool, torch.uint8) for t in _tensors(args[1])):
            self.waits(f"{func}: lists where a mask is set")
        return func(*args, **kwargs)


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _refuse(what: str) -> None:
    raise Waits(what)


@contextmanager
def unwaiting() -> Iterator[None]:
    """Work in here takes the GPU's way through the code, and raises an error where it would wait for the GPU."""
    if torch.cuda.is_available():
        with warnings.catch_warnings(action="ignore"):  # that torch may miss some
            torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return
    with as_on_a_gpu(), _launches_unseen(), _Calls(_refuse), _Operations(_refuse):
        yield


@contextmanager
def waits() -> Iterator[Counter[str]]:
    """How often work in here would wait for the GPU, by the line of the package that does: "relay.py _links". Not on a
    GPU."""
    found: Counter[str] = Counter()

    def count(what: str) -> None:
        ours = next(frame for frame in reversed(traceback.extract_stack()) if "mast_swarm" in frame.filename)
        found[f"{Path(ours.filename).name} {ours.name}"] += 1

    with as_on_a_gpu(), _launches_unseen(), _Calls(count), _Operations(count):
        yield found


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """The CPU stands for a GPU: with kernels in Triton's interpreter, elsewhere as a GPU without Triton."""
    with patch.object(kernels, "INTERPRETED", not torch.cuda.is_available()):
        yield


@contextmanager
def _launches_unseen() -> Iterator[None]:
    """Triton's interpreter copies what a kernel is given; a GPU would not."""
    if not kernels.USABLE:
        yield
        return
    from triton.runtime.interpreter import GridExecutor

    launch = GridExecutor.__call__

    def unseen(self: Any, *given: Any, **more: Any) -> Any:
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            return launch(self, *given, **more)

    with patch.object(GridExecutor, "__call__", unseen):
        yield
