"""Settings of MoCo."""

from dataclasses import dataclass

from pretrain.parts.choices import Projector
from pretrain.parts.view import Augmentation


@dataclass(frozen=True, kw_only=True)
class MoCoConfig:
    """Settings of MoCo; the defaults are v2's for ImageNet-1k."""

    temperature: float = 0.2
    """Tau, divides cosine similarities; v1 has 0.07."""
    projector: Projector = "mlp"
    """Kind of the projector; v1 has "linear"."""
    symmetric: bool = False
    """Each view is a query once and a key once, as in v2+; the loss is the mean of both."""
    label_smoothing: float = 0.0
    """Share of the target spread over the negatives; a baseline of CO2, arXiv:2010.02217."""
    consistency_temperature: float = 0.05
    """Tau_con of CO2's consistency loss, which is logged and not minimized; 0: not logged."""
    shared: tuple[Augmentation, ...] = ()
    """Augmentations drawn once for both views: LooC's baseline "same for q and k"."""
    key_only: tuple[Augmentation, ...] = ()
    """Augmentations that the query never gets: LooC's baseline "add-one"."""
    queue_size: int = 65_536
    """K, keys."""
    momentum: float = 0.999
    """Rate of the momentum encoder, per step."""
    embedding_dim: int = 128
    """d."""
    bn_splits: int = 1
    """Groups of images in one process, each with its own batch-norm statistics."""
