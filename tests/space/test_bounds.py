"""What reads or writes beyond its tensors is found in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from devices import DEVICE, INTERPRETED


@pytest.mark.kernels
@pytest.mark.skipif(not INTERPRETED, reason="on a GPU nobody looks")
def test_a_kernel_that_goes_too_far_is_found() -> None:
    import triton
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterError

    @triton.jit
    def moved(given: Any, into: Any, count: Any, EACH: tl.constexpr) -> None:
        i = tl.arange(0, EACH)
        tl.store(into + i, tl.load(given + i, mask=i < count, other=0), mask=i < count)

    whole = torch.arange(8, device=DEVICE)
    for given, into, what in [(whole[:6], whole.clone(), "reads"), (whole, torch.zeros_like(whole)[:6], "writes")]:
        moved[(1,)](given, into, 6, EACH=8)
        assert into[:6].tolist() == [0, 1, 2, 3, 4, 5]
        with pytest.raises(InterpreterError, match=f"moved {what} beyond its tensors: 1 of 7"):
            moved[(1,)](given, into, 7, EACH=8)
