"""Random views of images, and statistics of their features.

A view depends only on the seed, the image and the number of the view, so neither the number of
loader processes nor an interruption changes a pixel.
"""

from collections.abc import Sequence
from functools import partial

import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torch.nn.functional import normalize
from torchvision.transforms import v2

from pretrain.running import stop
from pretrain.running.console import progress
from pretrain.running.loader import load_batches
from transfer.datasets.images import Images
from transfer.encoders.encoder import Encoder
from transfer.encoders.projector import Projector
from transfer.frozen.crops import draw_seed
from transfer.frozen.extraction import num_workers
from transfer.frozen.finite import require_finite
from transfer.frozen.network import device, forward, frozen_network
from transfer.frozen.transforms import Normalization, ViewSettings

STATISTICS = ("mean_cosine", "mean_covariance_diagonal", "mean_nuclear_norm")
"""Names of the columns of `view_statistics`."""
IMAGES_PER_BATCH = 8  # 256 views in a forward pass at 32 views per image


def blur(image: Image.Image, sigma_px: tuple[float, float]) -> Image.Image:
    """Blur with a random standard deviation.

    It uses Pillow, as MoCo does; torchvision takes ten times as long.
    """
    std_px = float(torch.empty((), dtype=torch.float32).uniform_(*sigma_px))
    return image.filter(ImageFilter.GaussianBlur(std_px))


class RandomViews:
    """Random views of an image: crop, color jitter, grayscale, blur, flip."""

    def __init__(self, settings: ViewSettings) -> None:
        self.settings = settings
        random_blur = partial(blur, sigma_px=settings.blur_sigma_px)
        self.steps = v2.Compose(
            [
                v2.RandomResizedCrop(settings.size_px, scale=settings.crop_area, antialias=True),
                v2.RandomApply([v2.ColorJitter(*settings.jitter)], settings.jitter_probability),
                v2.RandomGrayscale(settings.gray_probability),
                v2.RandomApply([random_blur], settings.blur_probability),
                v2.RandomHorizontalFlip(settings.flip_probability),
                v2.PILToTensor(),
            ]
        )

    def __call__(self, image: Image.Image, seed: int, index: int) -> Tensor:
        """Return uint8 views (V, 3, H, W) of an image.

        index: position of the image in its split.
        """
        views, first = [], index * self.settings.num_views
        with torch.random.fork_rng(devices=[]):
            for number in range(first, first + self.settings.num_views):
                # torch.manual_seed would also seed GPUs, which is slow
                torch.default_generator.manual_seed(draw_seed(seed, number))
                views.append(self.steps(image))
        return torch.stack(views)


def view_statistics(embeddings: Tensor) -> Tensor:
    """Return STATISTICS (n, 3) of unit-length embeddings (n, V, d), float64.

    mean_cosine: mean over all V x V pairs, including a view with itself.
    mean_covariance_diagonal: with divisor V; equals (1 - mean cosine) / d.
    mean_nuclear_norm: of the V x d matrix, from sqrt(V) (equal views) to V (orthogonal views).
    """
    # float64, since 1 - mean cosine is a small difference of numbers near 1
    rows = embeddings.double()
    gram = rows @ rows.mT
    mean_cosine = gram.mean(dim=(1, 2))
    mean_square = gram.diagonal(dim1=1, dim2=2).mean(dim=1)
    variance = (mean_square - mean_cosine) / rows.shape[2]
    # singular values are square roots of the eigenvalues of the V x V Gram matrix
    # rounding can make zero eigenvalues slightly negative
    nuclear_norm = torch.linalg.eigvalsh(gram).clamp_min(0).sqrt().sum(dim=1)
    return torch.stack([mean_cosine, variance, nuclear_norm], dim=1).cpu()


def statistics_of_views(
    backbone: Encoder,
    projector: Projector | None,
    images: Images,
    indices: Sequence[int],
    settings: ViewSettings,
    seed: int,
) -> dict[str, Tensor]:
    """Return statistics (n, 3) of the views of images, by space.

    The keys are "feature" and, with a projector, "embedding".
    """
    network = frozen_network(backbone)
    views = RandomViews(settings)
    target_device = device()
    normalize_input = Normalization(backbone.input, target_device)
    pin = Tensor.pin_memory if target_device.type == "cuda" else None

    def draw_views(batch_indices: Sequence[int]) -> Tensor:
        return torch.stack([views(images[index][0], seed, index) for index in batch_indices])

    def view_name(chunk: Sequence[int], row: int) -> str:
        return f"a random view of {images.name(chunk[row // settings.num_views])}"

    starts = range(0, len(indices), IMAGES_PER_BATCH)
    chunks = [indices[start : start + IMAGES_PER_BATCH] for start in starts]
    workers = num_workers(len(indices) * settings.num_views)
    statistics = []
    with progress("views", "images", len(indices)) as counter:
        batches = load_batches(draw_views, chunks, num_workers=workers, pin_memory=pin)
        for chunk, raw in zip(chunks, batches, strict=True):
            features = forward(network, normalize_input(raw.flatten(0, 1)))
            require_finite(features, partial(view_name, chunk), f"by {backbone.name}")
            spaces = {"feature": normalize(features, dim=1)}
            if projector is not None:
                spaces["embedding"] = projector.embeddings(features)
            statistics.append(
                {
                    space: view_statistics(rows.unflatten(0, raw.shape[:2]))
                    for space, rows in spaces.items()
                }
            )
            counter.add(len(raw))
            stop.exit_if_requested()
    return {space: torch.cat([batch[space] for batch in statistics]) for space in spaces}
