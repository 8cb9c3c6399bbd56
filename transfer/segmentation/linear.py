"""Linear segmentation on a frozen encoder's feature maps: head, samples, sliding-window test.

DINOv2's protocol on VOC 2012 (Oquab et al., TMLR 2024, arXiv:2304.07193), with the settings that
Meta published. Images are resized with Pillow, which uses antialiasing when it shrinks;
mmsegmentation uses OpenCV, which does not.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from transfer.datasets.segmented import IGNORED, Mask, Segmented
from transfer.encoders.encoder import InputFormat
from transfer.finetuning.norms import Norm, norm_layer
from transfer.finetuning.stream import pixels
from transfer.finetuning.verify import TOLERANCE, exact_convolutions
from transfer.frozen.network import device, forward
from transfer.frozen.transforms import Normalization
from transfer.segmentation.network import pad_to, pixel_loss
from transfer.segmentation.recipe import LinearRecipe
from transfer.segmentation.samples import Sample


class LinearSegmenter(nn.Module):
    """Batch norm and a 1x1 convolution on frozen maps, upsampled."""

    def __init__(
        self,
        maps: nn.Module,
        input_format: InputFormat,
        recipe: LinearRecipe,
        *,
        padded_px: int,
        num_classes: int,
        norm: Norm,
    ) -> None:
        """maps: encoder for padded_px images, on its device; smaller images are padded."""
        super().__init__()
        # a tuple hides the submodule: it is not trained, not saved and always in eval mode
        self.encoder = (maps.requires_grad_(False).eval(),)
        self.normalize = Normalization(input_format, device())
        self.recipe, self.padded_px = recipe, padded_px
        channels = forward(maps, torch.zeros(1, 3, padded_px, padded_px)).shape[1]
        self.dropout = nn.Dropout2d(recipe.dropout)
        self.norm = norm_layer(norm)(channels)
        self.classifier = nn.Conv2d(channels, num_classes, 1)
        nn.init.normal_(self.classifier.weight, std=0.01)
        nn.init.zeros_(self.classifier.bias)  # type: ignore[arg-type]

    def forward(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        """Return the loss of a batch, by name.

        Ignored pixels count with 0 in the mean.
        """
        side = self.recipe.crop_px
        images = torch.stack([pad_to(self.normalize(s.image[None])[0], side, 0) for s in samples])
        masks = torch.stack([pad_to(s.mask, side, IGNORED) for s in samples])
        return {"loss_seg": pixel_loss(self.logits(images), masks)}

    def maps(self, images: Tensor) -> Tensor:
        """Return maps (n, C, h, w) of zero-padded images.

        images (n, 3, S, S): normalized.
        """
        pad_start = (self.padded_px - images.shape[-1]) // 2
        pad_end = self.padded_px - images.shape[-1] - pad_start
        return forward(self.encoder[0], pad(images, (pad_start, pad_end, pad_start, pad_end)))

    def logits(self, images: Tensor) -> Tensor:
        """Return logits (n, L, S, S) of normalized images (n, 3, S, S)."""
        coarse = self.classifier(self.norm(self.dropout(self.maps(images)))).float()
        return interpolate(coarse, size=images.shape[2:], mode="bilinear", align_corners=False)

    def classes(self, image: Tensor) -> Tensor:
        """Return the class (H, W) uint8 of each pixel of an image (3, H, W) uint8."""
        side, (height, width) = self.recipe.crop_px, image.shape[1:]
        scale = side / min(height, width)
        size = [max(side, round(length * scale)) for length in (height, width)]
        resized = interpolate(image[None].float(), size=size, mode="bilinear", antialias=True)
        scores = slide(self.logits, self.normalize(resized.round()), side, self.recipe.window_step)
        full = interpolate(scores, size=(height, width), mode="bilinear", align_corners=False)
        return full[0].argmax(dim=0).to(torch.uint8)

    def optimizer(self, recipe: LinearRecipe) -> torch.optim.AdamW:
        """Return AdamW for the head."""
        return torch.optim.AdamW(
            self.parameters(),
            lr=recipe.learning_rate,
            betas=recipe.adam_betas,
            weight_decay=recipe.weight_decay,
        )

    def verify(self, state_dict: Mapping[str, Tensor], arch: str) -> dict[str, float]:
        """Return how much maps depend on other images in the batch.

        Raises ValueError if they do (as in training mode), if they do not depend on the image, or
        if they are not finite.
        """
        generator = torch.Generator().manual_seed(0)
        side = self.recipe.crop_px
        images = torch.randn(2, 3, side, side, generator=generator, dtype=torch.float32)
        images = images.to(self.normalize.device)
        with exact_convolutions():
            batch_maps = self.maps(images)
            single_maps = torch.cat([self.maps(image[None]) for image in images])
        difference = ((batch_maps - single_maps).abs().max() / batch_maps.abs().max()).item()
        # in bfloat16 a product may round differently in a batch of another size
        is_bfloat16 = any(tensor.dtype == torch.bfloat16 for tensor in self.encoder[0].parameters())
        tolerance = 0.1 if is_bfloat16 else TOLERANCE
        if torch.equal(*batch_maps) or not difference <= tolerance:  # NaN fails, too
            raise ValueError(
                f"the maps of {arch} are not finite, do not depend on the image, or depend on the "
                f"batch: they differ by {difference:.1e} with another image in the batch, allowed "
                f"is {tolerance:g}"
            )
        return {"maps": difference}


def slide(logits: Callable[[Tensor], Tensor], image: Tensor, side: int, step: int) -> Tensor:
    """Return logits (1, L, H, W), averaged over windows.

    image: (1, 3, H, W), at least `side` px wide and high.
    """
    height, width = image.shape[2:]
    total, counts = image.new_zeros(0), image.new_zeros(height, width)
    for y in starts(height, side, step):
        for x in starts(width, side, step):
            window = (..., slice(y, y + side), slice(x, x + side))
            window_logits = logits(image[window])
            if not len(total):
                total = image.new_zeros(1, window_logits.shape[1], height, width)
            total[window] += window_logits
            counts[window] += 1
    return total / counts


def starts(length: int, side: int, step: int) -> list[int]:
    """Return the start of each window along one axis.

    The last window ends at the border.
    """
    count = max(0, math.ceil((length - side) / step)) + 1
    return [min(i * step, length - side) for i in range(count)]


def training_sample(
    split: Segmented, index: int, recipe: LinearRecipe, seed: int | Sequence[int]
) -> Sample:
    """Return a scaled, cropped, flipped and distorted image.

    It may be smaller than a crop.
    """
    random, side = np.random.default_rng(seed), recipe.crop_px
    image, mask = split.source.decode(index), Image.fromarray(split.mask(index))
    scale = float(random.uniform(*recipe.scales)) * side
    fitted = scale / min(image.size)
    if recipe.longest:
        fitted = min(fitted, recipe.longest * scale / max(image.size))
    width, height = (max(1, round(length * fitted)) for length in image.size)
    mask = mask.resize((width, height), Image.Resampling.NEAREST)

    def draw() -> tuple[int, int, int, int]:
        x, y = (int(random.integers(max(0, s - side) + 1)) for s in (width, height))
        return x, y, min(width, x + side), min(height, y + side)

    box = draw()
    for _ in range(recipe.redraws):
        counts = np.bincount(np.array(mask.crop(box)).ravel(), minlength=256)[:IGNORED]
        if counts.max() < recipe.most_of_a_class * counts.sum():
            break
        box = draw()
    image = image.resize((width, height), Image.Resampling.BILINEAR).crop(box)
    mask = mask.crop(box)
    if random.random() < recipe.flip_share:
        image, mask = (i.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for i in (image, mask))
    return Sample(image=pixels(distorted(image, random)), mask=torch.from_numpy(np.array(mask)))


def distorted(image: Image.Image, random: np.random.Generator) -> Image.Image:
    """Randomly change brightness, contrast, saturation and hue, each with p = 1/2.

    Ranges are as in mmsegmentation's PhotoMetricDistortion: 32 levels of brightness, a factor of
    0.5 to 1.5 for contrast and saturation, and 18 of 180 levels of hue. Contrast is changed before
    or after saturation and hue.
    """

    def scale_levels(levels: Mask, factor: float, offset: float = 0) -> Mask:
        return np.asarray((levels * np.float32(factor) + offset).clip(0, 255).astype(np.uint8))

    brightness, contrast, saturation, hue, contrast_first = random.random(5) < 0.5
    offset, contrast_factor, saturation_factor = (
        random.uniform(-32, 32),
        *random.uniform(0.5, 1.5, 2),
    )
    hue_shift = round(int(random.integers(-18, 18)) / 180 * 256)
    levels: Mask = np.array(image)
    if brightness:
        levels = scale_levels(levels, 1.0, offset)
    if contrast and contrast_first:
        levels = scale_levels(levels, contrast_factor)
    if saturation or hue:
        hsv = np.array(Image.fromarray(levels).convert("HSV"))
        if saturation:
            hsv[..., 1] = scale_levels(hsv[..., 1], saturation_factor)
        if hue:
            hsv[..., 0] = (hsv[..., 0].astype(np.int64) + hue_shift) % 256
        levels = np.array(
            Image.merge("HSV", [Image.fromarray(c) for c in np.moveaxis(hsv, 2, 0)]).convert("RGB")
        )
    if contrast and not contrast_first:
        levels = scale_levels(levels, contrast_factor)
    return Image.fromarray(levels)
