"""The CNN's GPU kernels compute what its modules compute, forwards and backwards, and so does what leads to them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from devices import DEVICE, HALF, INTERPRETED, few
from mast_swarm.model import perception
from mast_swarm.model.perception import CNNPerception, band
from mast_swarm.tasks.coverage.recipes import MAST as COVERAGE

SHAPES = [(2, 2, 4, 12, 12), (3, 13, 4, 32, 32), (1, 5, 3, 9, 40), (2, 2, 1, 7, 8), (2, 3, 16, 8, 67)]  # B, N, C, H, W
SMALL = [(1, 2, 3, 7, 40)]


def network(shape: tuple[int, ...]) -> CNNPerception:
    """A CNN with batch norms unlike new ones."""
    torch.manual_seed(0)
    cnn = CNNPerception(replace(COVERAGE, observation_dim=shape[2:]))
    for layer in cnn.convolutions:
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias)
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
    return cnn


def products(maps: Tensor, bands: Tensor) -> Tensor:
    """The convolution of maps [M, H, W, C] that a band [3, 128, 64] stands for: [M, H - 2, W - 2, 32]."""
    height, width = maps.shape[1] - 2, maps.shape[2] - 2
    windows = F.pad(maps, (0, 0, 0, width % 2)).unfold(2, 4, 2).transpose(3, 4).flatten(3)  # [M, H, pairs, 4 C]
    rows = [windows[:, y : y + height] @ bands[y, : windows.shape[-1]] for y in range(3)]
    return sum(rows[1:], rows[0]).unflatten(3, (2, 32)).flatten(2, 3)[:, :, :width]


def plainly(images: Tensor, bands: Tensor, flipped: Tensor, norms: Tensor, known: Tensor | None):
    """What `convolution.convolutions` promises, in plain torch."""
    maps, raw, statistics = images, [], []
    for layer, (weight, bias) in enumerate(norms):
        raw.append(products(maps, bands[layer]))
        if known is None:
            variance, mean = torch.var_mean(raw[-1], (0, 1, 2), correction=0)
        else:
            mean, variance = known[layer, :2]
        scale = weight * (variance + 1e-5).rsqrt() if known is None else known[layer, 2]
        shift = bias - mean * scale if known is None else known[layer, 3]
        statistics.append(torch.stack((mean, variance, scale, shift)))
        maps = F.leaky_relu(raw[-1] * scale + shift)
    return maps, torch.stack(statistics), torch.cat([z.flatten() for z in raw])


@pytest.mark.parametrize("channels", [4, 32])
def test_a_band_is_a_convolution_and_the_flipped_one_takes_gradients_back(channels: int) -> None:
    torch.manual_seed(0)
    weight = torch.randn(32, channels, 3, 3, dtype=torch.double)
    images = torch.randn(2, channels, 9, 8, dtype=torch.double, requires_grad=True)
    expected = F.conv2d(images, weight)
    assert torch.allclose(products(images.permute(0, 2, 3, 1), band(weight)), expected.permute(0, 2, 3, 1))
    if channels == 32:
        grad = torch.randn_like(expected)
        (wanted,) = torch.autograd.grad(expected, images, grad)
        padded = F.pad(grad, (2, 2, 2, 2)).permute(0, 2, 3, 1)
        found = products(padded, band(weight.transpose(0, 1).flip(2, 3)))
        assert torch.allclose(found, wanted.permute(0, 2, 3, 1))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("training", [True, False])
def test_what_leads_to_the_kernels_gives_them_what_they_expect(
    shape: tuple[int, ...], training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perception, "convolution", SimpleNamespace(convolutions=plainly))
    ours, theirs = (network(shape).double().train(training) for _ in range(2))
    images = torch.rand(shape, dtype=torch.double).flatten(0, 1)
    found, expected = ours._by_kernels(images), theirs.convolutions(images).permute(0, 2, 3, 1)
    assert torch.allclose(found, expected)
    weight = torch.randn_like(expected)
    for maps in (found, expected):
        maps.backward(weight)
    for one, other in zip(ours.convolutions.parameters(), theirs.convolutions.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad)
    for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        assert torch.allclose(one, other)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_leads_to_the_kernels_without_gradients(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(images: Tensor, bands: Tensor, known: Tensor) -> Tensor:
        for matrices, (_, _, scale, shift) in zip(bands, known, strict=True):
            images = F.leaky_relu(products(images, matrices) * scale + shift)
        return images

    monkeypatch.setattr(perception, "convolution", SimpleNamespace(convolutions_alone=alone))
    cnn, images = network(shape).double().eval(), torch.rand(shape, dtype=torch.double).flatten(0, 1)
    with torch.no_grad():
        assert torch.allclose(cnn._by_kernels(images), cnn.convolutions(images).permute(0, 2, 3, 1))


def learned(cnn: CNNPerception, features: Tensor, half: bool, run: Callable[..., Tensor] | None = None) -> list[Tensor]:
    """What a forward and a backward pass give: messages, gradients and statistics."""
    with torch.autocast(features.device.type, dtype=HALF, enabled=half):
        messages = (cnn if run is None else run)(features)  # a compiled module has a length, and so a truth, that fails
    torch.manual_seed(1)
    weight = torch.randn(messages.shape, device=DEVICE)
    messages.backward(weight.to(messages.dtype))
    grads = [parameter.grad for parameter in cnn.parameters()]
    return [messages.detach(), *grads, *cnn.buffers()]


def errors(found: list[Tensor], exact: list[Tensor]) -> Iterator[float]:
    for one, other in zip(found, exact, strict=True):
        yield ((one.double() - other).norm() / other.double().norm().clamp_min(1e-9)).item()


@pytest.mark.kernels
@pytest.mark.parametrize("shape", few(SHAPES, SMALL))
@pytest.mark.parametrize("training", [True, False])
def test_kernels_are_as_exact_as_the_library_in_half_precision(
    shape: tuple[int, ...], training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cnn = network(shape).to(DEVICE).train(training)
    features = torch.rand(shape, device=DEVICE)
    library, exact = copy.deepcopy(cnn), copy.deepcopy(cnn).double()
    found = learned(cnn, features, half=True)
    if not INTERPRETED:  # which does one thing after the other, and so the same every time
        again = learned(network(shape).to(DEVICE).train(training), features, half=True)
        assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
    monkeypatch.setattr(perception, "convolution", None)
    usual, wanted = learned(library, features, half=True), learned(exact, features.double(), half=False)
    for ours, theirs in zip(errors(found, wanted), errors(usual, wanted), strict=True):
        assert ours <= 2 * theirs + 5e-3


@pytest.mark.kernels
@pytest.mark.parametrize("shape", few(SHAPES, SMALL))
def test_kernels_without_gradients_are_as_exact(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    cnn, features = network(shape).to(DEVICE).eval(), torch.rand(shape, device=DEVICE)
    exact = copy.deepcopy(cnn).double()(features.double())

    def error(gradients: bool) -> float:
        with torch.autocast(features.device.type, dtype=HALF), torch.set_grad_enabled(gradients):
            return max(errors([cnn(features).detach()], [exact]))

    alone, kept = error(False), error(True)
    monkeypatch.setattr(perception, "convolution", None)
    assert max(alone, kept) <= 2 * error(False) + 5e-3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_kernels_work_compiled() -> None:
    shape = SHAPES[1]
    features = torch.rand(shape, device="cuda")
    eager, compiled = (network(shape).cuda().train() for _ in range(2))
    run = torch.compile(compiled, dynamic=False, fullgraph=True)
    for _ in range(2):  # statistics are learned every time
        for cnn in (eager, compiled):
            cnn.zero_grad()
        found, expected = learned(compiled, features, True, run), learned(eager, features, True)
    assert all(error < 5e-3 for error in errors(found, [value.double() for value in expected]))
