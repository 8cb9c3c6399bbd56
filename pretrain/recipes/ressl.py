"""Runs of ReSSL: Zheng et al., NeurIPS 2021, arXiv:2107.09282.

Numbers follow the authors' code. The code excludes biases and norm layers from weight decay by
name, except the norm layers of shortcuts; here all are decayed. The authors do not state the number
of epochs on CIFAR; it is taken from code derived from theirs.
"""

from dataclasses import dataclass, replace

from pretrain.data.views import ViewRecipe
from pretrain.recipes.recipe import RESNET18_CIFAR10, KeySettings, Recipe, Recipes
from pretrain.running.ranges import Dimension, Positive, QueueSize


@dataclass(frozen=True, kw_only=True)
class ReSSLConfig(KeySettings):
    """Settings of ReSSL; the defaults are the authors' code's for ImageNet-1k."""

    temperature: Positive = 0.1
    """Tau_s, temperature of the student's cosine similarities."""
    target_temperature: Positive = 0.04
    """Tau_t, temperature of the teacher's cosine similarities."""
    queue_size: QueueSize = 131_072
    """K, number of keys in the queue."""
    hidden_dim: Dimension = 4096
    """Width of the projector's hidden layer."""
    embedding_dim: Dimension = 512
    """d, dimension of the embeddings."""


IN1K = Recipe(
    method="ressl",
    config=ReSSLConfig(),
    epochs=200,
    batch_size=256,
    learning_rate=0.05,
    warmup_epochs=5,
    schedule_unit="step",
    paper="ReSSL (arXiv:2107.09282), the authors' code",
    table_row="ressl/readme: ReSSL",
    norm_groups=8,
)
CIFAR10 = replace(
    IN1K,
    config=ReSSLConfig(
        queue_size=4096, momentum=0.99, hidden_dim=2048, embedding_dim=128, bn_splits=8
    ),
    **RESNET18_CIFAR10,
    views=ViewRecipe(size_px=32, mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010)),
    learning_rate=0.06,
    weight_decay=5e-4,
    paper="ReSSL (arXiv:2107.09282), a copy of the authors' code for small datasets, which does "
    "not state the length; 200 epochs as in code derived from it",
    table_row="ressl/reproductions: ReSSL (MNN benchmark)",
)

RECIPES: Recipes = {
    "ressl/in1k-r50": IN1K,
    "ressl/cifar10": CIFAR10,
    "ressl/cifar100": replace(
        CIFAR10,
        images="CIFAR-100 train, as images",
        views=replace(CIFAR10.views, mean=(0.5071, 0.4867, 0.4408), std=(0.2675, 0.2565, 0.2761)),
    ),
}
