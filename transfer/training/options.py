"""What a user may ask of a long training besides its protocol: engine, memory, several rates."""

from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from transfer.detection.recipe import Recipe
from transfer.segmentation.recipe import SegmentationRecipe
from transfer.training.course import Precision

EngineChoice = Literal["auto", "detectron2", "torchvision"]
AnyRecipe = TypeVar("AnyRecipe", Recipe, SegmentationRecipe)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Of coco_*, voc0712_det_c4, voc12_seg_fcn; what changes the protocol is told in the table."""

    engine: EngineChoice = "auto"
    """Of detectors. auto: detectron2 where it is installed, else the same detector on torchvision's
    parts."""
    gpus: int = 0
    """A process on each trains the network. 0: as many as torchrun started, or all of this
    machine."""
    batch_size: int = 0
    """Images per step; learning rate and length follow by the linear scaling rule. 0: the
    protocol's."""
    images_per_gpu: int = 0
    """Images in one pass on one GPU; fewer than the batch's share accumulate gradients over several
    passes. 0: one pass."""
    iterations: int = 0
    """Steps of the training, drops of the rate and warm-up in proportion; 0: the protocol's."""
    image_px: int = 0
    """Detectors: short side of the test images; training images and anchors in proportion.
    Segmentation: side of the training crops. 0: the protocol's."""
    precision: Precision | None = None
    """Of the passes; bfloat16 and float16 by autocast. None: the protocol's, float32."""
    learning_rates: tuple[float, ...] = ()
    """Several are tried on a held-out part of the training set; one is taken as it is; none: the
    protocol's is taken."""

    def applied(self, recipe: AnyRecipe, num_processes: int) -> AnyRecipe:
        """The recipe as it will run; ValueError if the batch cannot be divided so."""
        if self.batch_size and self.batch_size != recipe.batch_size:
            recipe = recipe.with_batch(self.batch_size)
        if self.iterations:
            recipe = recipe.of_length(self.iterations / recipe.iterations)
        if self.image_px:
            recipe = recipe.at_size(self.image_px)
        if self.precision is not None:
            recipe = replace(recipe, precision=self.precision)
        if self.images_per_gpu:
            accumulated = recipe.batch_size / (self.images_per_gpu * num_processes)
            recipe = replace(recipe, accumulated=max(1, round(accumulated)))
        pieces = recipe.accumulated * num_processes
        told = self.images_per_gpu or recipe.batch_size / pieces
        if recipe.batch_size % pieces or recipe.batch_size // pieces != told:
            raise ValueError(
                f"a batch of {recipe.batch_size} images cannot be divided among {num_processes} "
                f"processes with {self.images_per_gpu or 'equally many'} images each; choose "
                f"--images-per-gpu or --batch-size so that it can"
            )
        return recipe
