"""The `Method` protocol: all that the loop, the settings and the export may read of a method."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import nn

from pretrain.parts.sync_bn import synchronize_batch_norms
from pretrain.parts.view import View


@dataclass(frozen=True, kw_only=True)
class BatchNeeds:
    """Conditions on a batch and on its division among processes; defaults allow every batch."""

    bn_splits: int = 0
    """Equal groups that the images of a process must split into; 0: the method does not split."""
    whitening_size: int = 1
    """Divisor of the batch size, images in a sub-batch."""
    queue_size: int = 0
    """Keys that the embeddings of a batch must fit into; 0: no queue."""
    sync_bn: bool = False
    """Batch norm over the images of all processes instead of one."""
    local_prior: bool = False
    """A prior or statistics over the images of one process, so that their number changes the
    loss."""

    def norm_groups(self, num_processes: int) -> int:
        """Return how many groups of a batch have batch-norm statistics of their own.

        Apart from rounding and a local prior, the number of processes changes a run only by this.
        """
        return 1 if self.sync_bn else num_processes * max(1, self.bn_splits)


class Method(nn.Module):
    """Networks and a loss, built from (backbone, feature_dim, config), and what they declare.

    `forward` gets V views (n, 3, H, W) and the share of the run that is done, then labels (n,) or
    image indices (n,) if the method uses them. It returns scalars by name: "loss", which is
    minimized and alone has a gradient, and what else is logged.
    """

    views: tuple[View, ...] = (View(), View())
    """Views of each image, small ones last."""
    backbone: nn.Module
    """Network that is exported and transferred."""
    projectors: tuple[nn.Module, ...] = ()
    """Projector (n, C) -> (n, d) of each head of `backbone`, before any normalization of its rows.
    A tuple registers no submodules: the names of tensors stay those of `encoder`."""
    encoder: Any
    """Backbone and projector, or what has several heads; both are learned."""
    predictor: Any
    """Network on one branch only, of methods that have one."""
    batch_settings: tuple[str, ...] = ()
    """Settings of the method that are conditions on a batch, by their names in `BatchNeeds`."""
    num_classes: int = 0
    """L, classes that the labels come from; 0: the method uses no labels."""
    num_images: int = 0
    """N, images that the indices refer to; 0: the method uses no indices."""
    fixed_rate: tuple[str, ...] = ()
    """Names of submodules whose learning rate follows no schedule."""
    metrics_read: bool = True
    """True if this step's metrics are read; else `forward` leaves out what is only logged and takes
    time. The loop sets it before each step."""
    frozen_until: Mapping[str, float] = MappingProxyType({})
    """Parameter name -> share of the run before which the parameter stays as it is."""

    def set_encoder(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        predictor: nn.Module | None = None,
        *,
        sync_bn: bool = False,
    ) -> None:
        """Set the backbone, the projector, `encoder`, the one after the other, and a predictor.

        With sync_bn their batch norm is over the images of all processes.
        """
        self.backbone = backbone
        self.projectors = (projector,)
        self.encoder = nn.Sequential(backbone, projector)
        if predictor is not None:
            self.predictor = predictor
        if sync_bn:
            synchronize_batch_norms(self)

    @classmethod
    def batch_needs(cls, config: Any) -> BatchNeeds:
        """Return the conditions on a batch, which are checked before any network is built."""
        return BatchNeeds(**{name: getattr(config, name) for name in cls.batch_settings})

    def after_step(self, progress: float) -> None:
        """Update what follows the weights, after each optimizer step.

        progress is the share of the run before the step, counted in steps whatever the unit of the
        recipe's schedules.
        """

    def cautions(self, batch_size: int) -> list[str]:
        """Return warnings about a run with batches of this size, to be printed before it."""
        return []
