"""Instance discrimination: recognize each image with a bank of past embeddings.

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
    positive_rows: Tensor,
    noise: Tensor,
    *,
    temperature: float,
    log_partition: Tensor,
    num_images: int,
) -> tuple[Tensor, Tensor]:
    """Return the NCE loss (eq. 6, 7) in nats, and log Z.

    query (n, d), positive_rows (n, d) and noise (n, m, d) have unit length. positive_rows are the
    images' rows of the bank, and noise rows are sampled uniformly from the whole bank. The scalar
    log_partition is log Z of eq. 4; if it is infinite, it is estimated from the batches of all
    processes. The loss is averaged over the batch and computed in float32, also under autocast.
    Only the query gets a gradient. The released code adds 1e-7 to the denominators of eq. 6.
    """
    with torch.autocast(query.device.type, enabled=False):
        query = at_least_float32(query)
        positive = (query * positive_rows.detach()).sum(dim=1) / temperature
        negative = torch.einsum("nd,nmd->nm", query, noise.detach()) / temperature
        # eq. 8 over all processes; the released code's mean includes the positive rows
        total = gather(negative.detach().float().logsumexp(dim=(0, 1))[None]).logsumexp(dim=0)
        estimate = total + math.log(num_images / (negative.numel() * num_processes()))
        # torch.where, so that no step waits for the device
        log_partition = torch.where(log_partition.isinf(), estimate, log_partition)
        # h of eq. 6 is sigmoid(logit - threshold): both logarithms are softplus, without overflow
        threshold = log_partition + math.log(noise.shape[1] / num_images)
        recognized = softplus(threshold - positive)
        rejected = softplus(negative - threshold).sum(dim=1)
        return (recognized + rejected).mean(), log_partition


def softmax_loss(query: Tensor, bank: Tensor, indices: Tensor, *, temperature: float) -> Tensor:
    """Return the mean cross entropy over all images (eq. 2).

    query (n, d), bank (N, d) of all images, rows of unit length; indices (n,) of the positive rows.
    In nats and float32. Only the query gets a gradient.
    """
    with torch.autocast(query.device.type, enabled=False):
        logits = at_least_float32(query) @ bank.detach().T / temperature
        return cross_entropy(logits, indices)


class InstDisc(Method):
    """An encoder, a bank of all images, and the estimated Z.

    The bank is initialized uniformly on the sphere; the released code samples from a cube.
    """

    bank: Tensor
    log_partition: Tensor
    last_batch: tuple[Tensor, Tensor]
    """Embeddings (n, d) and image indices (n,) of the last step."""

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
        """Return the loss of one view (n, 3, H, W).

        indices (n,) of the images. progress has no effect. Z is estimated from the first batch and
        then constant, as in the paper.
        """
        config = self.config
        query = normalize(self.encoder(views[0]).float(), dim=1)
        positive_rows = self.bank[indices]
        if config.num_negatives:
            # sampled for all N images, so that the samples do not depend on the number of
            # processes; they may include the positive row
            shape = (num_processes() * len(indices), config.num_negatives)
            rows = own_share(torch.randint(len(self.bank), shape, device=indices.device))
            loss, log_partition = nce_loss(
                *(query, positive_rows, self.bank[rows]),
                temperature=config.temperature,
                log_partition=self.log_partition,
                num_images=config.num_images,
            )
            self.log_partition.copy_(log_partition)
        else:
            loss = softmax_loss(query, self.bank, indices, temperature=config.temperature)
        proximal = (query - positive_rows).square().sum(dim=1).mean()
        self.last_batch = query.detach(), indices
        return {
            "loss": loss + config.proximal_weight * proximal,
            "proximal": proximal.detach(),
            "positive_similarity": (query.detach() * positive_rows).sum(dim=1).mean(),
        }

    @torch.no_grad()
    def after_step(self, progress: float | Tensor) -> None:
        """Move the bank's rows of all processes' images towards their embeddings.

        `forward` must not change the bank, which the gradient of the full softmax still needs.
        """
        query, indices = map(gather, self.last_batch)
        rows = torch.lerp(query, self.bank[indices], self.config.bank_momentum)
        self.bank.index_copy_(0, indices, normalize(rows, dim=1))
