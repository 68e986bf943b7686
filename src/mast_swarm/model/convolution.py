"""The 3x3 convolutions of the CNN with batch norm and LeakyReLU, both ways, by GPU kernels of their own.

Why by hand: maps of 32 channels are cheap to convolve and dear to move, and the library's convolutions and the
compiler's passes between them move them more often than need be, the latter far below the speed of memory. Here a
convolution takes the sums for batch norm as it writes what it gives ("raw" maps), and one pass normalises and activates
them; where statistics are known and nobody asks for gradients it activates what it writes. Backwards, the first layer,
which passes nothing on, reads its maps a single time.

Symbols: M images, H x W pixels, C channels of the images (a power of two, from 4 on), L layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from mast_swarm.model import convolution_kernels as kernels

# Pairs of pixels that a program has in hand at once, warps, stages of loads in flight, programs per processor: of the
# first layer, whose input is small, and of the others.
FORWARD = {True: (64, 4, 3, 3), False: (64, 4, 3, 2)}
ALONE = (64, 4, 3, 2)  # forward where no gradient is asked for
BACKWARD_INPUTS = (64, 4, 3, 2)
BACKWARD_WEIGHTS = {True: (32, 8, 3, 2), False: (64, 8, 2, 2)}
PIXELS, PASSES = 128, 4  # pixels at once, programs per processor, of kernels that pass over maps pixel by pixel
PAIRS: int = kernels.PAIRS.value  # in a row of an image


class _Walk:
    """How a kernel walks over maps [M, H, W, 32]: its programs, and what it is told of it."""

    def __init__(self, shape: Sequence[int], device: torch.device, tuned: tuple[int, int, int, int]) -> None:
        images, _, width = self.shape = shape
        pairs, warps, stages, programs = tuned
        blocks, groups = triton.cdiv(width, 2 * PAIRS), triton.cdiv(images, pairs // PAIRS)
        each = max(1, triton.cdiv(groups * blocks, _processors(device) * programs))
        self.grid = (triton.cdiv(groups, each), blocks)  # no program without images
        self.programs = self.grid[0] * blocks
        self.options = {"P": pairs, "num_warps": warps, "num_stages": stages}
        self.partial = torch.empty((2, 32, self.programs), device=device)  # sums by channel


def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _layers(images: Tensor, layers: int) -> list[tuple[int, int, int]]:
    """Images, height and width of each layer's maps."""
    count, height, width, _ = images.shape
    return [(count, height - 2 * layer, width - 2 * layer) for layer in range(1, layers + 1)]


def _parts(kept: Tensor, shapes: list[tuple[int, int, int]]) -> tuple[list[Tensor], list[Tensor]]:
    """The raw maps [M, H, W, 32] of each layer and the activated ones of all but the last, which all lie one after
    another in one tensor."""
    shapes = shapes + shapes[:-1]
    parts = kept.split([32 * count * height * width for count, height, width in shapes])
    maps = [part.view(*shape, 32) for part, shape in zip(parts, shapes, strict=True)]
    return maps[: len(maps) // 2 + 1], maps[len(maps) // 2 + 1 :]


@torch.library.custom_op("mast::convolutions", mutates_args=())
def convolutions(
    images: Tensor, bands: Tensor, flipped: Tensor, norms: Tensor, known: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Layers of convolution, batch norm and LeakyReLU; images [M, H, W, C] have no gradient.

    bands [L, 3, 128, 64]: see `band`, fp32 (products are of the images' type); flipped [L - 1, 3, 128, 64]: those of
    the convolutions that take gradients back through all layers but the first; norms [L, 2, 32]: weights and biases
    of batch norm; known: statistics to normalise with, None for those of this batch -> maps [M, H - 2 L, W - 2 L, 32],
    statistics [L, 4, 32] (mean, variance, and the scale and shift that follow), and what the gradient needs: all maps.
    """
    images, bands, norms = images.contiguous(), bands.contiguous(), norms.contiguous()
    shapes = _layers(images, len(bands))
    maps, statistics, kept = _outputs(images, bands)
    if known is not None:
        statistics.copy_(known)
    raw, activated = _parts(kept, shapes)
    source = images
    for layer, (out, after) in enumerate(zip(raw, [*activated, maps], strict=True)):
        walk, own = _Walk(shapes[layer], images.device, FORWARD[layer == 0]), statistics[layer]
        kernels.convolve[walk.grid](
            source, bands[layer], own, out, walk.partial, *walk.shape, C=source.shape[-1], PAD=0, ACTIVE=False,
            SUMS=known is None, **walk.options,
        )  # fmt: skip
        if known is None:
            count = _count(out, known=False)
            kernels.statistics[(32,)](walk.partial, norms[layer], own, walk.programs, count, BLOCK=256)
        pixels = out.numel() // 32
        kernels.activate[(triton.cdiv(pixels, PIXELS),)](out, own, after, pixels, P=PIXELS)
        source = after
    return maps, statistics, kept


@convolutions.register_fake
def _outputs(images: Tensor, bands: Tensor, *_: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    shapes = _layers(images, len(bands))
    return (
        images.new_empty((*shapes[-1], 32)),
        images.new_empty((len(bands), 4, 32), dtype=torch.float32),
        images.new_empty(sum(32 * count * height * width for count, height, width in shapes + shapes[:-1])),
    )


@torch.library.custom_op("mast::convolutions_alone", mutates_args=())
def convolutions_alone(images: Tensor, bands: Tensor, known: Tensor) -> Tensor:
    """The maps of `convolutions` with known statistics, where no gradient is asked for: a convolution then activates
    what it writes, and no raw maps are kept."""
    maps, bands, known = images.contiguous(), bands.contiguous(), known.contiguous()
    for layer, shape in enumerate(_layers(images, len(bands))):
        walk, out = _Walk(shape, images.device, ALONE), images.new_empty((*shape, 32))
        kernels.convolve[walk.grid](
            maps, bands[layer], known[layer], out, walk.partial, *walk.shape, C=maps.shape[-1], PAD=0, ACTIVE=True,
            SUMS=False, **walk.options,
        )  # fmt: skip
        maps = out
    return maps


@convolutions_alone.register_fake
def _alone(images: Tensor, bands: Tensor, known: Tensor) -> Tensor:
    return images.new_empty((*_layers(images, len(bands))[-1], 32))


@torch.library.custom_op("mast::convolutions_backward", mutates_args=())
def convolutions_backward(
    grad: Tensor, images: Tensor, flipped: Tensor, statistics: Tensor, kept: Tensor, known: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of bands [L, 3, 128, 64] and of norms [L, 2, 32], fp32, from that of the maps."""
    grad, images, flipped = grad.contiguous(), images.contiguous(), flipped.contiguous()
    shapes = _layers(images, len(statistics))
    raw, activated = _parts(kept, shapes)
    grad_bands, grad_norms = _gradients(grad, images, flipped, statistics, kept, known)
    for layer in reversed(range(1, len(statistics))):
        grad_raw = _through_norm(grad, raw[layer], statistics[layer], grad_norms[layer], known)
        source = activated[layer - 1]
        walk = _Walk(shapes[layer], grad.device, BACKWARD_WEIGHTS[False])
        shares = statistics.new_empty((walk.programs, 3, 128, 64))
        kernels.weight_gradient[walk.grid](source, grad_raw, shares, *walk.shape, **walk.options)
        torch.sum(shares, 0, out=grad_bands[layer])
        grad, walk = torch.empty_like(source), _Walk(shapes[layer - 1], grad.device, BACKWARD_INPUTS)
        kernels.convolve[walk.grid](
            grad_raw, flipped[layer - 1], statistics[layer], grad, walk.partial, *walk.shape, C=32, PAD=2, ACTIVE=False,
            SUMS=False, **walk.options,
        )  # fmt: skip
    grad_bands[0] = _first_band(grad, images, raw[0], statistics[0], grad_norms[0], known)
    return grad_bands, grad_norms


def _count(maps: Tensor, known: bool) -> float:
    """Pixels that the statistics of maps are means over; known ones do not depend on any one pixel."""
    return math.inf if known else maps.numel() / 32


def _through_norm(grad: Tensor, maps: Tensor, own: Tensor, grad_norm: Tensor, known: bool) -> Tensor:
    """The gradient of raw maps [M, H, W, 32], statistics `own`, from that of activated ones; `grad_norm` is filled."""
    pixels, coefficients, grad_raw = maps.numel() // 32, own.new_empty((3, 32)), torch.empty_like(maps)
    blocks = triton.cdiv(pixels, PIXELS)
    programs = min(blocks, _processors(grad.device) * PASSES)
    partial = own.new_empty((2, 32, programs))
    kernels.gradient_sums[(programs,)](grad, maps, own, partial, pixels, P=PIXELS)
    kernels.norm_gradient[(32,)](partial, own, grad_norm, coefficients, programs, _count(maps, known), BLOCK=256)
    kernels.raw_gradient[(blocks,)](grad, maps, own, coefficients, grad_raw, pixels, P=PIXELS)
    return grad_raw


def _first_band(grad: Tensor, images: Tensor, maps: Tensor, own: Tensor, grad_norm: Tensor, known: bool) -> Tensor:
    """The gradient [3, 128, 64] of the first layer's band, from that of activated maps; `grad_norm` is filled."""
    _, height, width, channels = images.shape
    walk = _Walk(maps.shape[:3], grad.device, BACKWARD_WEIGHTS[True])
    shares, coefficients = own.new_empty((walk.programs, 2, 3, 4 * channels, 64)), own.new_empty((3, 32))
    kernels.first_gradients[walk.grid](
        images, grad, maps, own, walk.partial, shares, *walk.shape, C=channels, **walk.options
    )  # fmt: skip
    count = _count(maps, known)
    kernels.norm_gradient[(32,)](walk.partial, own, grad_norm, coefficients, walk.programs, count, BLOCK=256)
    by_grad, by_raw, constant = coefficients.repeat(1, 2)  # of both pixels of a pair
    from_grad, from_raw = shares.sum(0)
    band = own.new_zeros((3, 128, 64))  # images may have fewer channels than there is room for
    band[:, : 4 * channels] = from_grad * by_grad + from_raw * by_raw
    seen = images.sum(0, dtype=torch.float32).unfold(0, height - 2, 1).unfold(1, width - 2, 1).sum((-1, -2))  # by a tap
    band[:, : 3 * channels, :32] += seen.flatten(1)[..., None] * constant[:32]  # [3, 3 C, 1], given to the first pixel
    return band


@convolutions_backward.register_fake
def _gradients(
    grad: Tensor, images: Tensor, flipped: Tensor, statistics: Tensor, kept: Tensor, known: bool
) -> tuple[Tensor, Tensor]:
    layers = len(statistics)
    return statistics.new_empty((layers, *flipped.shape[1:])), statistics.new_empty((layers, 2, 32))


def _keep(ctx, inputs, output) -> None:
    images, _, flipped, _, known = inputs
    _, statistics, kept = output
    ctx.known = known is not None
    ctx.save_for_backward(images, flipped, statistics, kept)


def _gradient(ctx, grad: Tensor, *_: Tensor | None):
    grad_bands, grad_norms = convolutions_backward(grad, *ctx.saved_tensors, ctx.known)
    return None, grad_bands, None, grad_norms, None


convolutions.register_autograd(_gradient, setup_context=_keep)
