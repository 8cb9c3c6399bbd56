"""Baselines: cross entropy with the true labels; random initialization as lower bound."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pretrain.method import Method
from pretrain.parts.view import View
from pretrain.recipes.looc import SupervisedConfig
from pretrain.recipes.small import RandomConfig


class Supervised(Method):
    """A backbone and a linear classifier, initialized as in torchvision."""

    views = (View(),)

    def __init__(self, backbone: nn.Module, feature_dim: int, config: SupervisedConfig) -> None:
        super().__init__()
        self.config = config
        self.num_classes = config.num_classes
        self.backbone = backbone  # what export.py writes
        self.classifier = nn.Linear(feature_dim, config.num_classes)

    def forward(self, views: list[Tensor], progress: float, labels: Tensor) -> dict[str, Tensor]:
        """Return loss and accuracy of one view (n, 3, H, W).

        labels (n,), 0 to L - 1.
        """
        scores = self.classifier(self.backbone(views[0])).float()
        loss = cross_entropy(scores, labels, label_smoothing=self.config.label_smoothing)
        correct = scores.detach().argmax(dim=1) == labels
        return {"loss": loss, "accuracy": 100 * correct.float().mean()}


class Random(Method):
    """An untrained backbone: runs of zero steps export its initialization."""

    views = (View(),)

    def __init__(self, backbone: nn.Module, feature_dim: int, config: RandomConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone  # what export.py writes

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return zero loss with zero gradients.

        The view (n, 3, H, W) has no effect.
        """
        # use all parameters: DistributedDataParallel waits for the gradient of each
        sums = torch.stack([parameter.sum() for parameter in self.backbone.parameters()])
        return {"loss": 0 * sums.sum()}
