"""Frozen features, and heads on them, on the device against the CPU."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from tests.gpu.findings import Findings, relative_difference, roundings
from tests.gpu.started import Workspace
from transfer.encoders.encoder import Encoder, random_backbone
from transfer.frozen.classifier import Heads
from transfer.frozen.feature_cache import Features
from transfer.frozen.nearest import knn_scores
from transfer.frozen.network import forward, frozen_network, in_bfloat16
from transfer.frozen.probe_training import ProbeTraining
from transfer.frozen.running_probe import HeadOptimizer, new_heads

ARCHITECTURES = ("resnet18", "resnet50")

BFLOAT16_ROUNDINGS = 110
"""Roundings to bfloat16, of weights and maps of a ResNet-50's 53 convolutions."""


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_features_in_float32(arch: str, workspace: Workspace, findings: Findings) -> None:
    backbone, images = lived_in_backbone(arch), noise_images(workspace)
    expected = forward(backbone.network(), images)
    result = forward(frozen_network(backbone), images)
    findings.add("features", relative_difference(result, expected), roundings(torch.float32))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_features_in_bfloat16(arch: str, workspace: Workspace, findings: Findings) -> None:
    """Feature directions are close to float32 and bfloat16 on the CPU.

    n roundings by up to 2^-9 turn a vector by sqrt(n) * 2^-9.
    """
    backbone, images = lived_in_backbone(arch), noise_images(workspace)
    expected = forward(backbone.network(), images)
    on_cpu = forward(in_bfloat16(backbone.network()), images)
    result = forward(frozen_network(replace(backbone, precision="bfloat16")), images).cpu()
    bound = BFLOAT16_ROUNDINGS * 2.0**-18 / 2  # 1 - cos(angle)
    for name, second in (("1 - cosine with float32", expected), ("... with the CPU", on_cpu)):
        cosine = cosine_similarity(result.double(), second.double()).min()
        findings.add(name, float(1 - cosine), 2 * bound)


def lived_in_backbone(arch: str) -> Encoder:
    """Return a random backbone with random batch norm means, variances and scales."""
    backbone = random_backbone(arch=arch, stem="imagenet", seed=0)
    generator = torch.Generator().manual_seed(1)
    for name, tensor in backbone.state_dict.items():
        if name.endswith(("running_mean", "bn1.bias", "bn2.bias")):
            tensor.copy_(0.1 * torch.randn(tensor.shape, generator=generator))
        elif name.endswith(("running_var", "bn1.weight", "bn2.weight")):
            tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
    return backbone


def noise_images(workspace: Workspace) -> Tensor:
    """Return noise images (n, 3, H, W), normalized, on the CPU."""
    shape = (4, 3, 64, 64) if not workspace.on_gpu else (16, 3, 224, 224)
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def test_nearest_neighbors(findings: Findings, workspace: Workspace) -> None:
    """kNN votes in float32 equal one float64 product on the CPU.

    A vote is exp(s / t) of a cosine s, which errs by sqrt(C) roundings. The features lie in tight
    clusters as large as the number of neighbors, so that no rounding changes which are nearest.
    """
    neighbors, classes, temperature = 20, 8, 0.1
    generator = torch.Generator().manual_seed(3)
    centers = normalize(torch.randn(2 * classes, 512, generator=generator), dim=1)
    spread = 0.01 * torch.randn(2 * classes, neighbors + 4, 512, generator=generator)
    features = centers[:, None] + spread
    bank = Features(
        features[:, :neighbors].flatten(0, 1),
        torch.randint(classes, (2 * classes * neighbors,), generator=generator),
    )
    queries = features[:, neighbors:].flatten(0, 1)
    keys = normalize(bank.features.double(), dim=1)
    nearness, nearest = (normalize(queries.double(), dim=1) @ keys.T).topk(neighbors)
    expected = torch.zeros(len(queries), classes, dtype=torch.float64)
    expected.scatter_add_(1, bank.labels[nearest], (nearness / temperature).exp())
    votes = knn_scores(
        bank, queries, num_classes=classes, num_neighbors=neighbors, temperature=temperature
    )
    bound = roundings(torch.float32, 4 * 512**0.5 / temperature)
    findings.add("votes", relative_difference(votes, expected), bound)


def test_linear_heads(findings: Findings, workspace: Workspace) -> None:
    """Heads after twenty steps on the device equal the CPU's in float64.

    Every step adds the roundings of its products over the features and the batch.
    """
    steps, size, classes, width = 20, 64, 10, 512
    rates = (0.01, 0.1, 1.0)
    training = ProbeTraining(learning_rates=rates, steps=steps, batch_size=size)
    generator = torch.Generator().manual_seed(4)
    batches = [
        (
            torch.randn(size, width, generator=generator).relu() / width**0.5,
            torch.randint(classes, (size,), generator=generator),
        )
        for _ in range(steps)
    ]
    heads = new_heads(rates, classes, width, training.weight_std, seed=0)
    doubled = Heads(heads.weight.double(), heads.bias.double())
    device = workspace.device
    result = HeadOptimizer(heads, training, device)
    expected = HeadOptimizer(doubled, training, torch.device("cpu"))
    for step, (features, labels) in enumerate(batches):
        losses = result.step(features.to(device), labels.to(device), step / steps)
        exact = expected.step(features.double(), labels, step / steps)
    bound = roundings(torch.float32, steps * (size + width) ** 0.5)
    findings.add("losses", relative_difference(losses, exact), bound)
    for name, ours, theirs in (
        ("weights", result.heads().weight, expected.heads().weight),
        ("biases", result.heads().bias, expected.heads().bias),
    ):
        findings.add(name, relative_difference(ours, theirs), bound)
