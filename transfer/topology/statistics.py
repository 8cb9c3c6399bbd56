"""Distance between the statistics that a file stores for its norms and those of real images.

A batch norm stores the mean and variance of its input over the training images (Ioffe and Szegedy,
ICML 2015, arXiv:1502.03167). A network with the same tensors but another padding, pooling, stride
or filter gives its norms other inputs, so the stored numbers tell which network they belong to.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms.functional import center_crop, resize, to_tensor

from pretrain.pixels.image_names import is_hidden

MAX_DIVERGENCE = 10.0
"""Upper bound of a channel's divergence in nats, so that no dead channel outweighs all others."""

MIN_DIVERGENCE = 1e-9
"""Smallest divergence of a norm in nats; rounding makes about this much."""

MIN_VARIANCE = 1e-12
"""Smallest variance that enters a divergence; the channels of a dead filter have variance 0."""


def moments_of(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance (C,) of maps (n, C, H, W) in float64."""
    variance, mean = torch.var_mean(maps.double(), dim=(0, 2, 3))
    return mean, variance


@contextmanager
def recorded_moments(network: nn.Module) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """Yield a dict that every forward pass fills with the moments of the norms' inputs."""
    moments: dict[str, tuple[Tensor, Tensor]] = {}

    def record(name: str, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        moments[name] = moments_of(inputs[0])

    with ExitStack() as hooks:
        for name, module in network.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                hooks.enter_context(module.register_forward_pre_hook(partial(record, name)))
        yield moments


def stored_moments(network: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the running mean and variance of every norm in float64."""
    return {
        name: (module.running_mean.double(), module.running_var.double())
        for name, module in network.named_modules()
        if isinstance(module, nn.BatchNorm2d)
        and module.running_mean is not None
        and module.running_var is not None
    }


def divergence(found: tuple[Tensor, Tensor], stored: tuple[Tensor, Tensor]) -> float:
    """Return the mean over channels of the Kullback-Leibler divergence of two normals, in nats.

    KL(N(m, v) || N(mu, s)) = ((m - mu)^2 / s + v / s - 1 - log(v / s)) / 2, at most MAX_DIVERGENCE.
    """
    (mean, variance), (stored_mean, stored_variance) = found, stored
    stored_variance = stored_variance.clamp(min=MIN_VARIANCE)
    ratio = variance.clamp(min=MIN_VARIANCE) / stored_variance
    shift = (mean - stored_mean).square() / stored_variance
    return float(((shift + ratio - 1 - ratio.log()) / 2).clamp(max=MAX_DIVERGENCE).mean())


def score(network: nn.Module, images: Tensor) -> float:
    """Return the geometric mean over the norms of their divergences in nats.

    images: (n, 3, H, W) in the network's own format. Each norm normalizes by the statistics of the
    images themselves, as in training. Otherwise brighter or plainer images than those of the
    training would shift every norm after the first, by more than a wrong padding does. One layer in
    a hundred may differ by much for reasons of its own; in a mean it would hide the others. The
    network's norms are left in training mode with momentum 0.
    """
    stored = stored_moments(network)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.momentum = 0.0  # the running statistics stay
    with torch.inference_mode(), recorded_moments(network) as moments:
        network(images)
    nats = [divergence(found, stored[name]) for name, found in moments.items()]
    values = torch.tensor(nats, dtype=torch.float64)
    return float(values.clamp(min=MIN_DIVERGENCE).log().mean().exp())


SUFFIXES = {".jpg", ".jpeg"}
"""Photographs are JPEG files; PNG files are as often masks and drawings."""

PER_FOLDER = 4
"""Images taken from one folder, so that classes and data sets mix."""

MAX_FOLDERS = 4096
"""Folders that are looked into; a search of all of ImageNet's files would take minutes."""


def natural_images(folder: Path, *, count: int, size_px: int) -> Tensor:
    """Return up to `count` photographs below `folder`, RGB from 0 to 1: (n, 3, size_px, size_px).

    The shorter side is resized to size_px * 8 / 7 and the center is cut out, as for 256 and 224.
    Images that cannot be decoded, or are smaller than the crop, are left out. n may be 0.
    """
    images = (_center(path, size_px) for path in _spread(_photographs(folder), count))
    pixels = [*itertools.islice((image for image in images if image is not None), count)]
    return (
        torch.stack(pixels) if pixels else torch.empty(0, 3, size_px, size_px, dtype=torch.float32)
    )


def _photographs(folder: Path) -> list[Path]:
    """Return a few photographs of every folder below `folder`, in order of their names."""
    found: list[Path] = []
    seen: set[str] = set()
    walk = os.walk(folder, followlinks=True)  # sets of data are often links
    for current, below, names in itertools.islice(walk, MAX_FOLDERS):
        place = os.path.realpath(current)
        below[:] = [] if place in seen else sorted(n for n in below if not is_hidden(n))
        names = [] if place in seen else names
        seen.add(place)
        photographs = (name for name in names if Path(name).suffix.lower() in SUFFIXES)
        files = sorted(name for name in photographs if not is_hidden(name))
        step = max(1, len(files) // PER_FOLDER)
        found += [Path(current, name) for name in files[::step][:PER_FOLDER]]
    return found


def _spread(paths: list[Path], count: int) -> list[Path]:
    """Return the paths so that the first `count` are evenly spread over all of them."""
    step = max(1, len(paths) // max(1, count))
    return [path for start in range(step) for path in paths[start::step]]


def _center(path: Path, size_px: int) -> Tensor | None:
    """Return the center (3, size_px, size_px) of an image, or None if it is none or too small."""
    try:
        with Image.open(path) as file:
            if min(file.size) < size_px:
                return None
            resized = resize(file.convert("RGB"), round(size_px * 8 / 7))
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    pixels: Tensor = to_tensor(center_crop(resized, size_px))
    return pixels
