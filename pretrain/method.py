"""The base class of methods: everything that other modules read."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from pretrain.parts.sync_bn import synchronize_batch_norms
from pretrain.parts.view import View


@dataclass(frozen=True, kw_only=True)
class BatchNeeds:
    """Conditions on a batch and on its division among processes.

    The defaults allow every batch.
    """

    bn_splits: int = 0
    """Number of equal groups that a process's images are split into.
    0: the method does not split."""
    whitening_size: int = 1
    """Images in a sub-batch; must divide the batch size."""
    queue_size: int = 0
    """Queue length, at least one batch of embeddings; 0: none."""
    sync_bn: bool = False
    """Batch norm over the images of all processes, not of one."""
    local_prior: bool = False
    """The loss uses statistics of the images of one process.
    So the number of processes changes the loss."""

    def norm_groups(self, num_processes: int) -> int:
        """Return into how many groups batch norm divides a batch.

        Apart from rounding and a local prior, the number of processes affects a run only through
        this number.
        """
        return 1 if self.sync_bn else num_processes * max(1, self.bn_splits)


class Method(nn.Module):
    """Networks and a loss, built from (backbone, feature_dim, config).

    `forward` gets V views (n, 3, H, W) and the finished fraction of the run, then labels (n,) or
    image indices (n,) if the method uses them. It returns scalars by name: "loss", which is
    minimized and is the only one with a gradient, and other metrics to log.
    """

    views: tuple[View, ...] = (View(), View())
    """Views of each image, small ones last."""
    backbone: nn.Module
    """Network that is exported and evaluated."""
    projectors: tuple[nn.Module, ...] = ()
    """Projector (n, C) -> (n, d) of each head.
    The final normalization is not included. A tuple registers no submodules, so tensors are named
    only as parts of `encoder`."""
    encoder: Any
    """Backbone and projector, or a module with several heads; both are trained."""
    predictor: Any
    """Network on one branch only, if the method has one."""
    batch_settings: tuple[str, ...] = ()
    """Settings that are conditions on a batch, by their names in `BatchNeeds`."""
    num_classes: int = 0
    """L, number of classes. 0: the method uses no labels."""
    num_images: int = 0
    """N, number of images; 0: the method uses no indices."""
    fixed_rate: tuple[str, ...] = ()
    """Names of submodules with a constant learning rate."""
    metrics_read: bool = True
    """Whether this step's metrics are read.
    If not, `forward` may skip expensive metrics that are only logged. Set by the loop before each
    step."""
    frozen_until: Mapping[str, float] = MappingProxyType({})
    """Parameter name -> fraction of the run until which it is frozen."""

    def set_encoder(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        predictor: nn.Module | None = None,
        *,
        sync_bn: bool = False,
    ) -> None:
        """Set `backbone`, `encoder` (backbone and projector), and `predictor` if given.

        sync_bn: whether their batch norms use the images of all processes.
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
        """Return the conditions on a batch; they are checked before building networks."""
        return BatchNeeds(**{name: getattr(config, name) for name in cls.batch_settings})

    def after_step(self, progress: float | Tensor) -> None:
        """Update state that depends on the weights, after each optimizer step.

        progress is the fraction of the run before the step. It counts steps, even if the recipe's
        schedules change per epoch. It may be a scalar tensor on the device, which is not read.
        """

    def cautions(self, batch_size: int) -> list[str]:
        """Return warnings to print before a run with this batch size."""
        return []
