"""The GPU kernels for lists compute what the plain functions compute; `test_windowed` has their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mast_swarm.model import lists
from mast_swarm.model.encoding import rotate

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(("rows", "heads", "width"), [(70, 4, 64), (1, 1, 32), (33, 8, 8)])
def test_rows_are_turned_and_attend(rows: int, heads: int, width: int) -> None:
    from mast_swarm.model import list_kernels as kernels

    rng = torch.Generator().manual_seed(rows)
    kv = torch.randn(rows, 2 * heads * width, generator=rng)
    phase, entry = torch.rand(9, width // 2, generator=rng) * 6, torch.randint(0, 9, (rows,), generator=rng)
    tables = phase.cos(), phase.sin()
    turned = rotate(kv[:, : heads * width].unflatten(-1, (heads, -1)), tuple(t[entry][:, None] for t in tables))
    there = kv.cuda()
    kernels.turn_rows(there[:, : heads * width], *(t.cuda() for t in tables), entry.cuda(), heads)
    kv[:, : heads * width] = turned.flatten(-2)
    assert torch.allclose(there.cpu(), kv, atol=1e-5)

    q, asks = torch.randn(5, heads * width, generator=rng), torch.randint(0, 5, (20,), generator=rng)
    count = torch.randint(1, 40, (20,), generator=rng)
    listed = torch.randint(0, rows, (int(count.sum()),), generator=rng)
    given = lists.Lists(listed, count.cumsum(0) - count, count)
    expected = lists.attend_lists(q, asks, kv, given, heads)
    there = (t.cuda() for t in (q, asks, kv, given.rows, given.start, given.count))
    found, _ = kernels.attend_lists(*there, heads)
    assert torch.allclose(found.cpu(), expected, atol=1e-5)

    table = torch.randint(0, rows, (3, 7), generator=rng)
    view, columns = torch.randint(0, 3, (20,), generator=rng), torch.randint(0, 7, listed.shape, generator=rng)
    given = lists.Lists(columns, given.start, given.count, table, view)
    expected = lists.attend_lists(q, asks, kv, given, heads)
    there = (t.cuda() for t in (q, asks, kv, columns.int(), given.start, given.count))
    found, _ = kernels.attend_lists(*there, heads, table.cuda(), view.cuda())
    assert torch.allclose(found.cpu(), expected, atol=1e-5)


@pytest.mark.parametrize("width", [256, 48])
@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("added", [True, False])
def test_sums_are_normed(width: int, asked: bool, added: bool) -> None:
    from mast_swarm.model import list_kernels as kernels

    rng = torch.Generator().manual_seed(width)
    x = torch.randn(9, width, generator=rng)
    y = torch.randn(9, width, generator=rng) if added else None
    asks = torch.randint(0, 9, (9,), generator=rng) if asked else None
    norm = nn.LayerNorm(width)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    norm.requires_grad_(False)
    expected = lists.add_normed(x, asks, y, norm)
    asks, y = (None if given is None else given.cuda() for given in (asks, y))
    found = kernels.add_normed(x.cuda(), asks, y, norm.weight.cuda(), norm.bias.cuda(), norm.eps)
    for a, b in zip(expected, found, strict=True):
        assert torch.allclose(a, b.cpu(), atol=1e-5)
