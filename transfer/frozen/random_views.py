"""Random views of images as in contrastive pre-training, and how much their features differ.

All draws depend only on the seed, the image and the number of the view, so neither the number of
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
"""Names of the columns of `view_statistics`; each is averaged over images."""
IMAGES_PER_BATCH = 8  # 256 views in a forward pass at 32 views per image


def blur(image: Image.Image, sigma_px: tuple[float, float]) -> Image.Image:
    """Blur by a drawn deviation with Pillow, as in MoCo; torchvision takes ten times as long."""
    drawn_px = float(torch.empty((), dtype=torch.float32).uniform_(*sigma_px))
    return image.filter(ImageFilter.GaussianBlur(drawn_px))


class RandomViews:
    """The views of an image: crop, color jitter, grayscale, blur, flip."""

    def __init__(self, settings: ViewSettings) -> None:
        self.settings = settings
        blurred = partial(blur, sigma_px=settings.blur_sigma_px)
        self.steps = v2.Compose(
            [
                v2.RandomResizedCrop(settings.size_px, scale=settings.crop_area, antialias=True),
                v2.RandomApply([v2.ColorJitter(*settings.jitter)], settings.jitter_probability),
                v2.RandomGrayscale(settings.gray_probability),
                v2.RandomApply([blurred], settings.blur_probability),
                v2.RandomHorizontalFlip(settings.flip_probability),
                v2.PILToTensor(),
            ]
        )

    def __call__(self, image: Image.Image, seed: int, index: int) -> Tensor:
        """Return views (V, 3, H, W) uint8 of the image at this index of its split."""
        views, first = [], index * self.settings.num_views
        with torch.random.fork_rng(devices=[]):
            for number in range(first, first + self.settings.num_views):
                # torch.manual_seed would also seed GPUs, which takes longer than the view
                torch.default_generator.manual_seed(draw_seed(seed, number))
                views.append(self.steps(image))
        return torch.stack(views)


def view_statistics(embeddings: Tensor) -> Tensor:
    """Return the three STATISTICS (n, 3), float64, of embeddings (n, V, d) of unit length.

    They are the mean cosine of all V x V pairs of views, a view with itself included; the mean
    diagonal of the covariance with divisor V, which is (1 - mean cosine) / d; and the nuclear norm
    of the V x d matrix, from sqrt(V) for equal views to V for orthogonal ones.
    """
    # 1 - mean cosine is a small difference of numbers near 1, which float32 would lose
    rows = embeddings.double()
    gram = rows @ rows.mT
    mean_cosine = gram.mean(dim=(1, 2))
    mean_square = gram.diagonal(dim1=1, dim2=2).mean(dim=1)
    variance = (mean_square - mean_cosine) / rows.shape[2]
    # the singular values are the roots of a V x V matrix's eigenvalues: no d x d matrix is built
    # rounding makes eigenvalues that are 0, those of equal views, slightly negative
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
    """Return the statistics (n, 3) of these images' features and, with a projector, embeddings.

    The keys are "feature" and "embedding".
    """
    finished: dict[str, list[Tensor]] = {"feature": []}
    if projector is not None:
        finished["embedding"] = []
    network = frozen_network(backbone)
    views = RandomViews(settings)
    where = device()
    to_input = Normalization(backbone.input, where)
    pin = Tensor.pin_memory if where.type == "cuda" else None
    done = 0

    def make(chunk: Sequence[int]) -> Tensor:
        return torch.stack([views(images[index][0], seed, index) for index in chunk])

    def name(start: int, row: int) -> str:
        image = images.name(indices[start + row // settings.num_views])
        return f"a random view of {image} by {backbone.name}"

    starts = range(0, len(indices), IMAGES_PER_BATCH)
    chunks = [indices[start : start + IMAGES_PER_BATCH] for start in starts]
    workers = num_workers(len(indices) * settings.num_views)
    with progress("views", "images", len(indices)) as counter:
        for raw in load_batches(make, chunks, num_workers=workers, pin_memory=pin):
            features = forward(network, to_input(raw.flatten(0, 1)))
            require_finite(features, partial(name, done))
            rows = {"feature": normalize(features, dim=1)}
            if projector is not None:
                rows["embedding"] = projector.embeddings(features)
            for space, values in rows.items():
                finished[space].append(view_statistics(values.unflatten(0, raw.shape[:2])))
            done += len(raw)
            counter.add(len(raw))
            stop.exit_if_requested()
    return {space: torch.cat(parts) for space, parts in finished.items()}
