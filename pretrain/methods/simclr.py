"""SimCLR: tell the other view of an image from all views of all other images of the batch.

Chen et al., ICML 2020, arXiv:2002.05709.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.parts.gather import gather_with_gradient, own_share
from pretrain.parts.precision import at_least_float32
from pretrain.parts.sync_bn import synchronized
from pretrain.parts.view import View


def nt_xent_loss(z1: Tensor, z2: Tensor, *, temperature: float) -> Tensor:
    """NT-Xent, eq. 1 and algorithm 1, mean over the views of this process's images, in nats.

    z1, z2 (n, d), projector outputs of any length; float32, also under autocast. Each of the 2n
    views is told from the 2N - 2 views of the other images of all processes, and the gradient
    flows into these as well: the mean over processes is the loss of the whole batch.
    """
    with torch.autocast(z1.device.type, enabled=False):
        logits, positive = view_logits(z1, z2, temperature=temperature)
        return (logits.logsumexp(dim=1) - positive).mean()


def view_logits(z1: Tensor, z2: Tensor, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Similarities (2n, 2N) of own views to all, -inf to themselves, and to the partners (2n,).

    Columns are the first views of all N images, then the second ones.
    """
    own = [normalize(at_least_float32(rows), dim=1) for rows in (z1, z2)]
    everything = torch.cat([gather_with_gradient(rows) for rows in own])
    logits = torch.cat(own) @ everything.T / temperature
    num_images = len(everything) // 2
    first = own_share(torch.arange(num_images, device=logits.device))
    itself = torch.cat([first, first + num_images])[:, None]
    partner = torch.cat([first + num_images, first])[:, None]
    return logits.scatter(1, itself, -torch.inf), logits.gather(1, partner)[:, 0]


@dataclass(frozen=True, kw_only=True)
class SimCLRConfig:
    """Settings of SimCLR; the defaults are the paper's for ImageNet-1k."""

    temperature: float = 0.1
    """Tau, divides cosine similarities; 0.5 on CIFAR-10."""
    hidden_dim: int = 2048
    """Width of the projector's hidden layer."""
    embedding_dim: int = 128
    """d."""
    sync_bn: bool = True
    """Batch norm over the images of all processes: the paper's global batch norm, section 2.2."""


class SimCLR(nn.Module):
    """An encoder for both views."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: SimCLRConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(), View())
        self.backbone = backbone  # what export.py writes
        projector = projector_of_code(feature_dim, config.hidden_dim, config.embedding_dim)
        self.encoder = nn.Sequential(backbone, projector)
        if config.sync_bn:
            synchronized(self.encoder)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """views: 2 of (n, 3, H, W), through the encoder together; progress has no effect."""
        z1, z2 = self.encoder(torch.cat(views)).chunk(2)
        with torch.autocast(z1.device.type, enabled=False):
            logits, positive = view_logits(z1, z2, temperature=self.config.temperature)
            loss = (logits.logsumexp(dim=1) - positive).mean()
        found = positive.detach() >= logits.detach().amax(dim=1)
        return {"loss": loss, "instance_accuracy": 100 * found.float().mean()}


def projector_of_code(in_features: int, hidden_features: int, out_features: int) -> nn.Sequential:
    """Two layers, (n, in) -> (n, out), batch norm after both, as in the released code.

    The paper names no norm; the code's last one has a scale and no shift, torch's has both.
    """
    return nn.Sequential(
        nn.Linear(in_features, hidden_features, bias=False),
        nn.BatchNorm1d(hidden_features),
        nn.ReLU(inplace=True),
        nn.Linear(hidden_features, out_features, bias=False),
        nn.BatchNorm1d(out_features),
    )
