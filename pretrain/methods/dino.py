"""DINO: predict a momentum encoder's centered and sharpened output for other views.

Caron et al., ICCV 2021, arXiv:2104.14294. The encoder is the paper's student, and the target
encoder is its teacher.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from pretrain.method import Method
from pretrain.parts.gather import gather
from pretrain.parts.heads import features_by_size
from pretrain.parts.losses import cross_view_entropy
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.parts.sync_bn import synchronize_batch_norms
from pretrain.parts.view import View
from pretrain.recipes.dino import DINOConfig


def dino_loss(
    logits: Tensor,
    target_logits: Tensor,
    center: Tensor,
    *,
    temperature: float,
    target_temperature: float,
) -> dict[str, Tensor]:
    """Return the cross entropy between views (eq. 3), in nats.

    The loss is the mean over the terms of eq. 3. For the log, the entropy of the targets and the
    loss minus this entropy are returned as well.

    logits (V, n, K) of all views; target_logits (A, n, K) of the first A views, which get no
    gradient; center (K,). Computed in float32, also under autocast.
    """
    targets = ((target_logits.detach().float() - center) / target_temperature).softmax(dim=2)
    loss = cross_view_entropy(logits.float() / temperature, targets)
    entropy = -torch.special.xlogy(targets, targets).sum(dim=2).mean()
    return {"loss": loss, "target_entropy": entropy, "target_divergence": loss.detach() - entropy}


class Head(nn.Module):
    """The projector: features (n, C) -> logits (n, K), float32.

    A logit is the cosine of the embedding with one of K learned directions.
    """

    def __init__(self, feature_dim: int, config: DINOConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in (feature_dim, config.hidden_dim):
            # batch norm cancels a bias
            layers.append(nn.Linear(width, config.hidden_dim, bias=not config.head_norm))
            if config.head_norm:
                layers.append(nn.BatchNorm1d(config.hidden_dim))
            layers.append(nn.GELU())
        self.layers = nn.Sequential(*layers, nn.Linear(config.hidden_dim, config.embedding_dim))
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        # rows are normalized in `forward`: weight norm with a gain fixed to 1
        self.last_layer = nn.Linear(config.embedding_dim, config.output_dim, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (n, K), in [-1, 1], of features (n, C)."""
        embeddings = self.layers(features).float()
        with torch.autocast(embeddings.device.type, enabled=False):
            directions = normalize(self.last_layer.weight, dim=1)
            return linear(normalize(embeddings, dim=1), directions)


class DINO(Method):
    """An encoder, its momentum encoder (target), and the target logits' center."""

    batch_settings = ("sync_bn",)

    center: Tensor

    def __init__(self, backbone: nn.Module, feature_dim: int, config: DINOConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(), View()) + config.num_small_views * (View(small=True),)
        self.encoder = synchronize_batch_norms(nn.Sequential(backbone, Head(feature_dim, config)))
        self.target_encoder = MomentumEncoder(self.encoder, config.momentum)
        # the target encoder's backbone is exported, since the paper evaluates its teacher
        self.backbone = self.target_encoder.network.get_submodule("0")
        self.projectors = (self.target_encoder.network.get_submodule("1.layers"),)
        # until this fraction of the run, the loop drops the gradients of these weights
        self.frozen_until = {"encoder.1.last_layer.weight": config.last_layer_from}
        self.register_buffer("center", torch.zeros(config.output_dim))

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of 2 + S views, small ones last.

        views (n, 3, H, W). progress, the fraction of the run, determines the target temperature.
        """
        config = self.config
        target_logits = self.target_encoder(torch.cat(views[:2])).unflatten(0, (2, -1))
        backbone, head = self.encoder
        # the backbone gets each size separately, the head all at once, as in the released code
        logits = head(features_by_size(backbone, views)).unflatten(0, (len(views), -1))
        metrics = dino_loss(
            logits,
            target_logits,
            self.center,
            temperature=config.temperature,
            target_temperature=self.target_temperature(progress),
        )
        # eq. 4, after the loss: this step's targets are centered with the past steps' center
        mean = gather(target_logits.float().flatten(0, 1).mean(dim=0)[None]).mean(dim=0)
        self.center.copy_(torch.lerp(mean, self.center, config.center_momentum))
        return metrics

    def after_step(self, progress: float | Tensor) -> None:
        """Update the target encoder with the released code's momentum for this step."""
        self.target_encoder.update(self.encoder, progress)

    def target_temperature(self, progress: float) -> float:
        """Return the target temperature tau_t: linear during the warm-up, then constant.

        progress is the fraction of the run. The released code updates tau_t once per epoch; here it
        follows the schedule's unit.
        """
        config = self.config
        weight = 1.0
        if config.temperature_warmup:
            weight = min(progress / config.temperature_warmup, 1.0)
        return (1 - weight) * config.first_target_temperature + weight * config.target_temperature
