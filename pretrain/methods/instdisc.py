"""Instance discrimination: tell each image from all others by a bank of their past embeddings.

Wu et al., CVPR 2018, arXiv:1805.01978; also known as NPID and InsDis.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, softplus

from pretrain.method import Method
from pretrain.parts.gather import gather, num_processes, own_share
from pretrain.parts.losses import at_least_float32
from pretrain.parts.view import View
from pretrain.recipes.instdisc import InstDiscConfig


def nce_loss(
    query: Tensor,
    own: Tensor,
    noise: Tensor,
    *,
    temperature: float,
    log_partition: Tensor,
    num_images: int,
) -> tuple[Tensor, Tensor]:
    """Return eq. 6 and 7, mean over the batch, in nats, and the logarithm of Z; float32.

    query (n, d); own (n, d), the images' rows of the bank; noise (n, m, d), rows drawn uniformly
    from the whole bank; rows of unit length. log_partition is the logarithm of Z in eq. 4, a
    scalar, which is estimated, without gradient, where it is infinite. Only the query gets a
    gradient. float32 also under autocast. The released code adds 1e-7 to the denominators of eq. 6.
    """
    with torch.autocast(query.device.type, enabled=False):
        query = at_least_float32(query)
        positive = (query * own.detach()).sum(dim=1) / temperature
        negative = torch.einsum("nd,nmd->nm", query, noise.detach()) / temperature
        # eq. 8 over all processes; the released code's mean includes the images' own rows
        total = gather(negative.detach().float().logsumexp(dim=(0, 1))[None]).logsumexp(dim=0)
        estimate = total + math.log(num_images / (negative.numel() * num_processes()))
        # a choice on the device, so that no step waits for it
        log_partition = torch.where(log_partition.isinf(), estimate, log_partition)
        # h of eq. 6 is sigmoid(logit - threshold): both logarithms are softplus, without overflow
        threshold = log_partition + math.log(noise.shape[1] / num_images)
        recognized = softplus(threshold - positive)
        rejected = softplus(negative - threshold).sum(dim=1)
        return (recognized + rejected).mean(), log_partition


def softmax_loss(query: Tensor, bank: Tensor, indices: Tensor, *, temperature: float) -> Tensor:
    """Return minus the logarithm of eq. 2, mean over the batch, in nats; float32.

    query (n, d), bank (N, d) of all images, rows of unit length; indices (n,) of the images' own
    rows. Only the query gets a gradient.
    """
    with torch.autocast(query.device.type, enabled=False):
        logits = at_least_float32(query) @ bank.detach().T / temperature
        return cross_entropy(logits, indices)


class InstDisc(Method):
    """An encoder, a bank with a row for each image, and Z after its estimate.

    The bank starts uniform on the sphere; the released code draws it from a cube.
    """

    bank: Tensor
    log_partition: Tensor
    seen: tuple[Tensor, Tensor]
    """Embeddings (n, d) of the last step and the indices (n,) of their images."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: InstDiscConfig) -> None:
        super().__init__()
        self.config = config
        self.num_images = config.num_images
        self.views = (View(),)
        self.set_encoder(backbone, nn.Linear(feature_dim, config.embedding_dim))
        rows = torch.randn(config.num_images, config.embedding_dim)
        self.register_buffer("bank", normalize(rows, dim=1))
        self.register_buffer("log_partition", torch.tensor(torch.inf))

    def forward(self, views: list[Tensor], progress: float, indices: Tensor) -> dict[str, Tensor]:
        """Return the loss of one view (n, 3, H, W) of the images at indices (n,).

        progress has no effect. Z is estimated from the first batch and then constant, as in the
        paper.
        """
        config = self.config
        query = normalize(self.encoder(views[0]).float(), dim=1)
        own = self.bank[indices]
        if config.num_negatives:
            # rows drawn for all N images, so that the draw does not depend on the number of
            # processes; perhaps an image's own
            shape = (num_processes() * len(indices), config.num_negatives)
            drawn = own_share(torch.randint(len(self.bank), shape, device=indices.device))
            loss, log_partition = nce_loss(
                *(query, own, self.bank[drawn]),
                temperature=config.temperature,
                log_partition=self.log_partition,
                num_images=config.num_images,
            )
            self.log_partition.copy_(log_partition)
        else:
            loss = softmax_loss(query, self.bank, indices, temperature=config.temperature)
        proximal = (query - own).square().sum(dim=1).mean()
        self.seen = query.detach(), indices
        return {
            "loss": loss + config.proximal_weight * proximal,
            "proximal": proximal.detach(),
            "positive_similarity": (query.detach() * own).sum(dim=1).mean(),
        }

    @torch.no_grad()
    def after_step(self, progress: float) -> None:
        """Move the rows of the images of all processes towards their embeddings.

        Not in `forward`: the gradient of the full softmax needs the bank as it was there.
        """
        query, indices = map(gather, self.seen)
        rows = torch.lerp(query, self.bank[indices], self.config.bank_momentum)
        self.bank.index_copy_(0, indices, normalize(rows, dim=1))
