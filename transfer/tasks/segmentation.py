"""Segmentation of VOC 2012: a fine-tuned network, and feature maps of any frozen encoder.

voc12_seg_fcn: an FCN, of which all layers are fine-tuned; CO2 Table 3 (Wei et al., ICLR 2021,
arXiv:2010.02217, sections 3.4 and A.2), with MoCo's network. voc12_seg_linear: a linear classifier
at each position of frozen maps (DINOv2: Oquab et al., TMLR 2024, arXiv:2304.07193).
voc12_seg_incontext: nearest patches of training images (Balazevic et al., NeurIPS 2023,
arXiv:2306.01667).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pretrain.running.processes import this_process
from transfer.datasets.catalog import DATASETS
from transfer.datasets.folders import Folders
from transfer.datasets.segmented import IGNORED, Segmented
from transfer.encoders.architectures import PLAIN, WIDE
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import TrainingOptions, length_fraction
from transfer.finetuning.schedule import AnyRecipe
from transfer.segmentation import recipe as recipes
from transfer.segmentation.masks import Predicted
from transfer.segmentation.recipe import InContextRecipe, LinearRecipe, SegmentationRecipe
from transfer.tasks.recipe_training import (
    RecipeTraining,
    checked_split,
    fine_tuning_unsupported_reason,
)
from transfer.tasks.task import Task, TrainingData

if TYPE_CHECKING:
    from transfer.finetuning.norms import Norm
    from transfer.finetuning.stream import Samples
    from transfer.galleries.tile import Tile
    from transfer.segmentation.linear import LinearSegmenter
    from transfer.segmentation.network import FCN
    from transfer.segmentation.samples import Sample

FROZEN_HEADING = "Segmentation of frozen encoders"
IN_CONTEXT = InContextRecipe()


@dataclass(frozen=True, kw_only=True)
class PixelTraining(RecipeTraining[AnyRecipe]):
    """Base class of tasks that train on masks and test full-size images."""

    primary_metric: ClassVar[str] = "mIoU"

    dataset: str = "voc12_seg"

    def unusable_reason(self, images: Segmented, *, is_test: bool) -> str:
        """Return why the masks cannot be used; empty if they can."""
        return no_class_message(images)

    def test(self, network: Any, data: TrainingData, folder: Path, folders: Folders) -> Predicted:
        """Write the predicted masks of the test images to files; return them."""
        from transfer.segmentation.predict import predict

        masks = folder / "predictions"
        predict(network, data.test, masks, this_process())
        stored = masks.relative_to(folders.work).as_posix()
        details = {"masks": list(data.train.notes), "predictions": stored}
        return Predicted(masks, data.test, details)

    def metrics(self, predicted: Predicted) -> dict[str, float]:
        """Return mIoU in percent."""
        return {"mIoU": predicted.overlap.mean}

    def details(self, predicted: Predicted) -> dict[str, object]:
        """Return details of the training and all scores of the masks."""
        return {**predicted.details, **predicted.scores()}

    def gallery(self, predicted: Predicted, folders: Folders) -> list[Tile]:
        """Return pictures of predicted masks next to the ground truth."""
        return predicted.gallery()


def no_class_message(images: Segmented) -> str:
    """Return an error message if no pixel has a class, or ''."""
    # usually the first mask already has a class
    if any((images.mask(i) != IGNORED).any() for i in range(len(images))):
        return ""
    return f"no pixel with a class: the masks of {len(images):,} images hold {IGNORED} (ignored)"


@dataclass(frozen=True, kw_only=True)
class Segmentation(PixelTraining[SegmentationRecipe]):
    """An FCN on the backbone; all layers are trained."""

    engine: ClassVar[str] = "mmsegmentation"
    kind: ClassVar[str] = "segmentation"
    assumption: ClassVar[str] = (
        "if a ResNet-50 trains on 20 crops of 513 px a second (assumed, not measured)"
    )
    mean_of_three: ClassVar[str] = "voc12_seg_fcn"
    work: ClassVar[str] = "voc12_seg_fcn"

    def unsupported_reason(self, backbone: Encoder) -> str:
        """Return why a backbone is not supported; empty if it is."""
        if find_spec("mmseg") is None:
            return "it needs mmsegmentation: pip install 'ssl-benchmark[segmentation]'"
        if backbone.arch in WIDE:
            return f"mmsegmentation's ResNet is built as {', '.join(PLAIN)}, not {backbone.arch}"
        return fine_tuning_unsupported_reason(
            backbone, "layer4 would not have the protocol's stride of 16"
        )

    @property
    def relative_size(self) -> float:
        """Return the crop size relative to the one that `hours` assumes."""
        return self.recipe.crop_px / 513

    def build(self, backbone: Encoder, num_classes: int, norm: Norm) -> FCN:
        """Return the network with the backbone's weights; torch draws the other weights."""
        from transfer.segmentation.network import build_network

        network = build_network(self.recipe, arch=backbone.arch, num_classes=num_classes, norm=norm)
        network.load_backbone(backbone.state_dict)
        return network

    def samples(self, images: Segmented, seed: int) -> Samples[Sample]:
        """Return random crops of the images."""
        from transfer.finetuning.stream import single_samples
        from transfer.segmentation.samples import training_sample

        return single_samples(images, training_sample, self.recipe, seed)


@dataclass(frozen=True, kw_only=True)
class SegmentationLinear(PixelTraining[LinearRecipe]):
    """Batch norm and a linear classifier on maps of a frozen encoder."""

    heading: ClassVar[str] = FROZEN_HEADING
    trains_backbone: ClassVar[bool] = False
    supported_options: ClassVar[frozenset[str]] = (
        PixelTraining.supported_options | {"features_in"}
    ) - {"images_per_gpu"}
    kind: ClassVar[str] = "linear segmentation"
    assumption: ClassVar[str] = "if crops take the time of a ResNet-50's at 224 px, by their area"
    work: ClassVar[str] = "map"

    engine: Literal["torch"] = "torch"
    patch_px: int = field(default=16, metadata={"hashed": False, "stored": False})
    """Stride of the encoder's maps in px."""

    def for_backbone(self, backbone: Encoder) -> Self:
        """Return the protocol with the crop size that matches its grid."""
        patch, recipe = backbone.maps_stride[0] or 16, self.recipe
        if recipe.grid:
            recipe = replace(recipe, crop_px=recipe.grid * patch)
        return replace(self, recipe=recipe, patch_px=patch)

    def with_options(self, options: TrainingOptions) -> Self:
        """Return the protocol with the user's options. Raises ValueError for micro-batches."""
        changed = super().with_options(options)
        if changed.recipe.accumulated > 1:
            raise ValueError(
                f"--images-per-gpu {options.images_per_gpu}: the batch norm uses statistics of "
                f"all {changed.recipe.batch_size} images of a step. Leave the option out"
            )
        return changed

    def unsupported_reason(self, backbone: Encoder) -> str:
        """Return why an encoder has no feature maps; empty if it has."""
        return missing_maps_reason(backbone)

    @property
    def relative_size(self) -> float:
        """Return the crop size relative to 224 px."""
        return self.recipe.crop_px / 224

    def units(self) -> dict[str, float]:
        """Return the number of crops and test windows, in 224 px images."""
        crops = self.recipe.iterations * self.recipe.batch_size * (1 + len(self.learning_rates))
        windows = 2 * DATASETS[self.dataset].counts["test"]
        return {self.work: (crops + windows) * self.relative_size**2}

    def memory_gb(self, num_processes: int) -> float:
        """Return the memory in GB of the logits, softmax and gradient."""
        values = self.recipe.batch_size / num_processes * self.recipe.crop_px**2
        return 3 * 4 * values * DATASETS[self.dataset].num_classes / 1e9

    def build(self, backbone: Encoder, num_classes: int, norm: Norm) -> LinearSegmenter:
        """Return the encoder with a new head; torch draws the head's weights."""
        from transfer.frozen.network import frozen_maps_network
        from transfer.segmentation.linear import LinearSegmenter

        padded_px = -(-self.recipe.crop_px // self.patch_px) * self.patch_px
        return LinearSegmenter(
            frozen_maps_network(backbone, padded_px),
            backbone.input,
            self.recipe,
            padded_px=padded_px,
            num_classes=num_classes,
            norm=norm,
        )

    def samples(self, images: Segmented, seed: int) -> Samples[Sample]:
        """Return random crops of the images."""
        from transfer.finetuning.stream import single_samples
        from transfer.segmentation.linear import training_sample

        return single_samples(images, training_sample, self.recipe, seed)


@dataclass(frozen=True, eq=False)
class TwoSizes:
    """Predicted masks on the encoder's square input, and at full image size."""

    square: Predicted
    full: Predicted


@dataclass(frozen=True, kw_only=True)
class SegmentationInContext(Task):
    """Each test patch gets the classes of the nearest training patches."""

    heading: ClassVar[str] = FROZEN_HEADING
    primary_metric: ClassVar[str] = "mIoU"
    supported_options: ClassVar[frozenset[str]] = frozenset({"features_in"})

    dataset: str = "voc12_seg"
    protocol: str = "hummingbird-2023/1"
    engine: Literal["torch"] = "torch"
    recipe: InContextRecipe = IN_CONTEXT

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol with a smaller memory; smoke: also with small images."""
        if schedule == "paper":
            return self
        if schedule == "smoke":
            return replace(self, recipe=self.recipe.tiny())
        return replace(self, recipe=self.recipe.of_length(length_fraction(schedule)))

    def for_backbone(self, backbone: Encoder) -> Self:
        """Return the protocol with an image size divisible by the patch size."""
        patch = backbone.maps_stride[0] or 1
        size = max(1, self.recipe.image_px // patch) * patch
        return replace(self, recipe=replace(self.recipe, image_px=size))

    def unsupported_reason(self, backbone: Encoder) -> str:
        """Return why an encoder has no feature maps; empty if it has."""
        return missing_maps_reason(backbone)

    def units(self) -> dict[str, float]:
        """Return the number of images to encode, in 224 px images."""
        counts, recipe = DATASETS[self.dataset].counts, self.recipe
        images = counts["trainval"] * recipe.epochs + counts["test"]
        return {"map": images * (recipe.image_px / 224) ** 2}

    def prepare(self, backbone: Encoder, folders: Folders) -> TrainingData:
        """Return all images. Raises DataError if a split has no labeled pixel."""
        train, test = (
            checked_split(folders, self.dataset, split, no_class_message)
            for split in ("trainval", "test")
        )
        return TrainingData(backbone, train, test)

    def run(self, prepared: TrainingData, folders: Folders, seed: int) -> TwoSizes:
        """Predict the masks, in files; the seed draws the memory."""
        from transfer.frozen.network import device, frozen_maps_network
        from transfer.frozen.transforms import Normalization
        from transfer.segmentation.incontext import predict

        backbone, test = prepared.backbone, prepared.test
        train: Any = prepared.train
        square, full = (folders.work / name for name in ("square", "predictions"))
        details = predict(
            frozen_maps_network(backbone, self.recipe.image_px),
            Normalization(backbone.input, device()),
            self.recipe,
            train,
            test,
            (square, full),
            seed,
        )
        details |= {
            "masks": list(train.notes),
            "num_train": len(train),
            "num_test": len(test),
            "predictions": full.relative_to(folders.work).as_posix(),
        }
        on_square = Predicted(square, test, details, self.recipe.image_px)
        return TwoSizes(on_square, Predicted(full, test))

    def metrics(self, predictions: TwoSizes) -> dict[str, float]:
        """Return mIoU on the square, in percent."""
        return {"mIoU": predictions.square.overlap.mean}

    def details(self, predictions: TwoSizes) -> dict[str, object]:
        """Return all scores of the square input, and the full-size mIoU."""
        square = predictions.square
        return {
            **square.details,
            **square.scores(),
            "mIoU_full_size": predictions.full.overlap.mean,
        }

    def gallery(self, predictions: TwoSizes, folders: Folders) -> list[Tile]:
        """Return pictures of predicted masks next to the ground truth."""
        return predictions.full.gallery()


def missing_maps_reason(backbone: Encoder) -> str:
    """Return why an encoder has no feature maps; empty if it has."""
    stride, reason = backbone.maps_stride
    return "" if stride else f"{backbone.arch} has no maps (n, C, h, w): {reason}"


def with_memory(name: str, patches: int) -> SegmentationInContext:
    """Return the protocol with a smaller memory."""
    recipe = replace(IN_CONTEXT, memory_patches=patches)
    protocol = f"hummingbird-2023-{name}/1"
    return SegmentationInContext(protocol=protocol, recipe=recipe, by_default=False)


def linear(protocol: str, recipe: LinearRecipe) -> SegmentationLinear:
    """Return a linear protocol that runs only if it is named."""
    return SegmentationLinear(protocol=protocol, recipe=recipe, by_default=False)


TASKS: dict[str, Task] = {
    "voc12_seg_fcn": Segmentation(protocol="co2-2021/1", recipe=recipes.VOC_FCN),
    "voc12_seg_fcn@moco": Segmentation(
        protocol="moco-2020/1", recipe=recipes.VOC_FCN_MOCO, by_default=False
    ),
    "voc12_seg_linear": linear("dinov2-2023/1", recipes.DINOV2),
    "voc12_seg_linear@dinov3": linear("dinov3-2025/1", recipes.DINOV3),
    "voc12_seg_linear@grid32": linear("dinov2-2023-grid32/1", recipes.GRID32),
    "voc12_seg_incontext": SegmentationInContext(by_default=False),
    # the search in the full memory takes minutes on a GPU, days on a CPU
    "voc12_seg_incontext@1m": with_memory("1m", 1_024_000),
    "voc12_seg_incontext@100k": with_memory("100k", 102_400),
}
