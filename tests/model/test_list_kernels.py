"""The GPU kernels for lists compute what the plain functions compute; `test_windowed` has their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import mast_swarm
from devices import DEVICE, HALF, few, plainly
from mast_swarm.model import lists
from mast_swarm.model.encoding import make_encoding, rotate

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize(("rows", "heads", "width"), [(70, 4, few(64, 16)), (1, 1, 32), (33, 8, 8)])
def test_rows_are_turned_and_attend(rows: int, heads: int, width: int) -> None:
    from mast_swarm.model import list_kernels as kernels

    rng = torch.Generator().manual_seed(rows)
    kv = torch.randn(rows, 2 * heads * width, generator=rng)
    phase, entry = torch.rand(9, width // 2, generator=rng) * 6, torch.randint(0, 9, (rows,), generator=rng)
    tables = phase.cos(), phase.sin()
    turned = rotate(kv[:, : heads * width].unflatten(-1, (heads, -1)), tuple(t[entry][:, None] for t in tables))
    there = kv.to(DEVICE, copy=True)
    kernels.turn_rows(there[:, : heads * width], *(t.to(DEVICE) for t in tables), entry.to(DEVICE), heads)
    kv[:, : heads * width] = turned.flatten(-2)
    assert torch.allclose(there.cpu(), kv, atol=1e-5)

    q, asks = torch.randn(5, heads * width, generator=rng), torch.randint(0, 5, (20,), generator=rng)
    count = torch.randint(1, 40, (20,), generator=rng)
    listed = torch.randint(0, rows, (int(count.sum()),), generator=rng)
    given = lists.Lists(listed, count.cumsum(0) - count, count)
    with plainly():
        expected = lists.attend_lists(q, asks, kv, given, heads)
    there = (t.to(DEVICE) for t in (q, asks, kv, given.rows, given.start, given.count))
    found, _ = kernels.attend_lists(*there, heads)
    assert torch.allclose(found.cpu(), expected, atol=1e-5)

    table = torch.randint(0, rows, (3, 7), generator=rng)
    view, columns = torch.randint(0, 3, (20,), generator=rng), torch.randint(0, 7, listed.shape, generator=rng)
    given = lists.Lists(columns, given.start, given.count, table, view)
    with plainly():
        expected = lists.attend_lists(q, asks, kv, given, heads)
    there = (t.to(DEVICE) for t in (q, asks, kv, columns.int(), given.start, given.count))
    found, _ = kernels.attend_lists(*there, heads, table.to(DEVICE), view.to(DEVICE))
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
    with plainly():
        expected = lists.add_normed(x, asks, y, norm)
    asks, y = (None if given is None else given.to(DEVICE) for given in (asks, y))
    given = (asks, y, norm.weight.to(DEVICE), norm.bias.to(DEVICE), norm.eps)
    found = kernels.add_normed(x.to(DEVICE), *given)
    for a, b in zip(expected, found, strict=True):
        assert torch.allclose(a, b.cpu(), atol=1e-5)
    there = x.to(DEVICE, copy=True)
    total, normed = kernels.add_normed(there, *given, summed=False)
    assert total is there and torch.equal(there.cpu(), x) and torch.equal(normed, found[1])


@pytest.mark.parametrize(("encoding", "head_dim"), [("rope-g", 64), ("rope-l", 12)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tables_of_phases(encoding: str, head_dim: int, dtype: torch.dtype) -> None:
    """Also a hundred kilometres from where they are taken relative to."""
    config = mast_swarm.PolicyConfig(heads=1, head_dim=head_dim, encoding=encoding)
    positions = torch.rand(2, 37, 2, generator=torch.Generator().manual_seed(1), dtype=dtype) * 2e5 - 1e5
    with plainly():
        expected = make_encoding(config).rotation(positions)
    found = make_encoding(config).to(DEVICE).rotation(positions.to(DEVICE))
    for a, b in zip(expected, found, strict=True):
        assert b.dtype == torch.float32 and torch.allclose(a, b.cpu(), atol=2e-6)


@pytest.mark.parametrize("apart", ["tables", "entries", "columns"])
def test_rows_are_turned_by_what_does_not_lie_in_one_piece(apart: str) -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(16, 6, generator=rng).T if apart == "columns" else torch.randn(6, 16, generator=rng)
    phase = torch.rand(4, 5, generator=rng).T if apart == "tables" else torch.rand(5, 4, generator=rng)
    entry = torch.randint(0, 5, (6, 2), generator=rng)[:, 0 if apart == "entries" else slice(0, 1)].reshape(6)
    tables = phase.cos(), phase.sin()
    expected = rotate(x.unflatten(-1, (2, -1)), tuple(t[entry][:, None] for t in tables)).flatten(-2)
    there = x.to(DEVICE, copy=True)
    lists.turn_rows(there, tuple(t.to(DEVICE) for t in tables), entry.to(DEVICE), 2)
    assert torch.allclose(there.cpu(), expected, atol=1e-5)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_lists_that_do_not_lie_in_one_piece_and_none(count: int) -> None:
    rng = torch.Generator().manual_seed(count)
    q, kv = torch.randn(4, 48, generator=rng)[:, :16], torch.randn(32, 9, generator=rng).T
    asks, start = torch.randint(0, 4, (count, 2), generator=rng)[:, 0], torch.arange(2 * count)[::2]
    given = (torch.randint(0, 9, (2 * count, 2), generator=rng)[:, 0], start, torch.full((count,), 2))
    with plainly():
        expected = lists.attend_lists(q.contiguous(), asks, kv.contiguous(), lists.Lists(*given), 2)
    there = lists.Lists(*(t.to(DEVICE) for t in given))
    found = lists.attend_lists(q.to(DEVICE), asks.to(DEVICE), kv.to(DEVICE), there, 2)
    assert found.shape == (count, 16) and torch.allclose(found.cpu(), expected, atol=1e-5)


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("asked", [True, False])
def test_sums_and_norms_are_as_precise_as_autocast_asks(half: bool, asked: bool) -> None:
    """Sums are rounded when they have been normed; while learning they are not."""
    norm = nn.LayerNorm(8, device=DEVICE).requires_grad_(False)
    rows = 2**17 if DEVICE == "cuda" else 3  # as many as are worth a kernel
    x = torch.randn(rows, 8, device=DEVICE) + 4  # far from 0, so that norms tell whether sums were rounded before
    asks = torch.randint(0, rows, (rows,), device=DEVICE) if asked else None
    given, off = (HALF, torch.finfo(HALF).eps) if half else (torch.float32, 1e-5)
    with torch.no_grad(), torch.autocast(DEVICE, dtype=HALF, enabled=half):
        for stream in (x, x.to(given)):
            for y in (None, x, x.to(HALF)):
                total, normed = lists.add_normed(stream, asks, y, norm)
                exact = (stream if asks is None else stream[asks]).float() + (0 if y is None else y.float())
                assert normed.dtype == given and total.dtype == (given if asked or y is not None else stream.dtype)
                torch.testing.assert_close(total.float(), exact, rtol=off, atol=1e-6)
                torch.testing.assert_close(normed.float(), norm(exact), rtol=off, atol=5e-5)
        with torch.enable_grad():
            assert lists.add_normed(x, asks, x.to(HALF), norm)[0].dtype == torch.float32
