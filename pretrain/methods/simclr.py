"""SimCLR: recognize the other view of an image among the views of all images of the batch.

Chen et al., ICML 2020, arXiv:2002.05709.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.method import Method
from pretrain.parts.gather import gather_with_gradient, own_share
from pretrain.parts.heads import mlp_with_norm
from pretrain.parts.losses import at_least_float32
from pretrain.recipes.simclr import SimCLRConfig


def nt_xent_loss(z1: Tensor, z2: Tensor, *, temperature: float) -> dict[str, Tensor]:
    """Return NT-Xent (eq. 1, algorithm 1), mean over the 2n views of this process, in nats.

    With the loss comes the share of views that are most like their partner, in percent.

    z1, z2 (n, d), projector outputs of any length; float32, also under autocast. The negatives of
    a view are the 2N - 2 views of the other images of all processes. They get a gradient too, so
    the mean over processes is the loss of the whole batch.
    """
    with torch.autocast(z1.device.type, enabled=False):
        own_views = [normalize(at_least_float32(rows), dim=1) for rows in (z1, z2)]
        # the first views of all N images, then the second views
        all_views = torch.cat([gather_with_gradient(rows) for rows in own_views])
        logits = torch.cat(own_views) @ all_views.T / temperature
        num_images = len(all_views) // 2
        first = own_share(torch.arange(num_images, device=logits.device))
        itself = torch.cat([first, first + num_images])[:, None]
        partner = torch.cat([first + num_images, first])[:, None]
        positive = logits.gather(1, partner)[:, 0]
        logits = logits.scatter(1, itself, -torch.inf)
        loss = (logits.logsumexp(dim=1) - positive).mean()
    recognized = positive.detach() >= logits.detach().amax(dim=1)
    return {"loss": loss, "instance_accuracy": 100 * recognized.float().mean()}


class SimCLR(Method):
    """An encoder for both views; the negatives are the other images of the batch."""

    batch_settings = ("sync_bn",)

    def __init__(self, backbone: nn.Module, feature_dim: int, config: SimCLRConfig) -> None:
        super().__init__()
        self.config = config
        # the paper names no norm; the last one of its code has a scale and no shift
        projector = mlp_with_norm(
            feature_dim, config.hidden_dim, config.embedding_dim, final_norm="affine"
        )
        self.set_encoder(backbone, projector, sync_bn=config.sync_bn)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of two views (n, 3, H, W); progress has no effect."""
        # one pass, so that both views share their batch statistics
        z1, z2 = self.encoder(torch.cat(views)).chunk(2)
        return nt_xent_loss(z1, z2, temperature=self.config.temperature)
