"""SimCLR: recognize an image's other view among all views of the batch.

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
    """Return NT-Xent (eq. 1, algorithm 1), in nats.

    z1, z2 (n, d): projector outputs of any length. The loss is averaged over the 2n views of this
    process, and computed in float32, also under autocast. The negatives of a view are the 2N - 2
    views of the other images of all processes. They get a gradient too, so the mean over processes
    is the loss of the whole batch. The percentage of views that are most similar to the other view
    of their image is returned for the log.
    """
    with torch.autocast(z1.device.type, enabled=False):
        local_views = [normalize(at_least_float32(rows), dim=1) for rows in (z1, z2)]
        # the first views of all N images, then the second views
        all_views = torch.cat([gather_with_gradient(rows) for rows in local_views])
        logits = torch.cat(local_views) @ all_views.T / temperature
        num_images = len(all_views) // 2
        image_index = own_share(torch.arange(num_images, device=logits.device))
        self_index = torch.cat([image_index, image_index + num_images])[:, None]
        positive_index = torch.cat([image_index + num_images, image_index])[:, None]
        positive = logits.gather(1, positive_index)[:, 0]
        logits = logits.scatter(1, self_index, -torch.inf)
        loss = (logits.logsumexp(dim=1) - positive).mean()
    is_correct = positive.detach() >= logits.detach().amax(dim=1)
    return {"loss": loss, "instance_accuracy": 100 * is_correct.float().mean()}


class SimCLR(Method):
    """An encoder for both views; other images are negatives."""

    batch_settings = ("sync_bn",)

    def __init__(self, backbone: nn.Module, feature_dim: int, config: SimCLRConfig) -> None:
        super().__init__()
        self.config = config
        # the paper names no norm layers; the last one in its code has a scale but no shift
        projector = mlp_with_norm(
            feature_dim, config.hidden_dim, config.embedding_dim, final_norm="affine"
        )
        self.set_encoder(backbone, projector, sync_bn=config.sync_bn)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of two views (n, 3, H, W).

        progress has no effect.
        """
        # one forward pass, so that both views share batch statistics
        z1, z2 = self.encoder(torch.cat(views)).chunk(2)
        return nt_xent_loss(z1, z2, temperature=self.config.temperature)
