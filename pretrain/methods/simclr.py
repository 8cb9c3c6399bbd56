"""SimCLR: recognize the other view of an image among the views of all images of the batch.

Chen et al., ICML 2020, arXiv:2002.05709.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.method import BatchNeeds, Method
from pretrain.parts.gather import gather_with_gradient, own_share
from pretrain.parts.loss_dtype import at_least_float32
from pretrain.parts.sync_bn import synchronize_batch_norms
from pretrain.parts.view import View
from pretrain.recipes.simclr import SimCLRConfig


def nt_xent_loss(z1: Tensor, z2: Tensor, *, temperature: float) -> Tensor:
    """Return NT-Xent (eq. 1, algorithm 1), mean over the 2n views of this process, in nats.

    z1, z2 (n, d), projector outputs of any length; float32, also under autocast. The negatives of
    a view are the 2N - 2 views of the other images of all processes. They get a gradient too, so
    the mean over processes is the loss of the whole batch.
    """
    with torch.autocast(z1.device.type, enabled=False):
        logits, positive = view_logits(z1, z2, temperature=temperature)
        return (logits.logsumexp(dim=1) - positive).mean()


def view_logits(z1: Tensor, z2: Tensor, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Return logits (2n, 2N) of own views with all views, and (2n,) with their partners.

    z1, z2 (n, d) of any length. The columns are the first views of all N images, then the second
    views; a view has -inf with itself.
    """
    own_views = [normalize(at_least_float32(rows), dim=1) for rows in (z1, z2)]
    all_views = torch.cat([gather_with_gradient(rows) for rows in own_views])
    logits = torch.cat(own_views) @ all_views.T / temperature
    num_images = len(all_views) // 2
    first = own_share(torch.arange(num_images, device=logits.device))
    itself = torch.cat([first, first + num_images])[:, None]
    partner = torch.cat([first + num_images, first])[:, None]
    return logits.scatter(1, itself, -torch.inf), logits.gather(1, partner)[:, 0]


class SimCLR(Method):
    """An encoder for both views; the negatives are the other images of the batch."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: SimCLRConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(), View())
        self.backbone = backbone  # what export.py writes
        projector = simclr_projector(feature_dim, config.hidden_dim, config.embedding_dim)
        self.encoder = nn.Sequential(backbone, projector)
        self.projectors = (projector,)
        if config.sync_bn:
            synchronize_batch_norms(self.encoder)

    @staticmethod
    def batch_needs(config: SimCLRConfig) -> BatchNeeds:
        """Return the conditions on a batch."""
        return BatchNeeds(sync_bn=config.sync_bn)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of two views (n, 3, H, W); progress has no effect."""
        # one pass, so that both views share their batch statistics
        z1, z2 = self.encoder(torch.cat(views)).chunk(2)
        with torch.autocast(z1.device.type, enabled=False):
            logits, positive = view_logits(z1, z2, temperature=self.config.temperature)
            loss = (logits.logsumexp(dim=1) - positive).mean()
        recognized = positive.detach() >= logits.detach().amax(dim=1)
        return {"loss": loss, "instance_accuracy": 100 * recognized.float().mean()}


def simclr_projector(in_features: int, hidden_features: int, out_features: int) -> nn.Sequential:
    """Return two layers (n, in) -> (n, out), with batch norm after both as in the released code.

    The paper names no norm. The code's last one has a scale and no shift; torch's has both.
    """
    return nn.Sequential(
        nn.Linear(in_features, hidden_features, bias=False),
        nn.BatchNorm1d(hidden_features),
        nn.ReLU(inplace=True),
        nn.Linear(hidden_features, out_features, bias=False),
        nn.BatchNorm1d(out_features),
    )
