"""Checks of frozen features and of what is computed on them."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from transfer.backbone import Backbone, Precision, random_backbone
from transfer.checks.comparison import Differences, exact_float32, relative_difference, roundings
from transfer.checks.report import Facts, Place
from transfer.checks.speed import seconds_per_call, with_peak_memory
from transfer.frozen.classifier import Heads
from transfer.frozen.features import Features
from transfer.frozen.head_optimizer import HeadOptimizer, new_heads
from transfer.frozen.nearest import knn_scores
from transfer.frozen.network import forward, frozen_network, in_bfloat16
from transfer.frozen.probe_training import ProbeTraining
from transfer.frozen.transforms import normalize_pixels

BFLOAT16_ROUNDINGS = 110
"""Roundings to bfloat16, of a weight and a map each, of a ResNet-50's 53 convolutions and more."""


def check_float32(arch: str, place: Place) -> Facts:
    """Compare float32 features on the device with those of the CPU."""
    backbone, images = lived_in_backbone(arch), noise_images(place)
    with exact_float32():
        expected = forward(backbone.network(), images)
        found = forward(frozen_network(backbone), images)
    differences = Differences()
    differences.add("features", relative_difference(found, expected), roundings(torch.float32))
    return differences.checked()


def check_bfloat16(arch: str, place: Place) -> Facts:
    """Compare the directions of bfloat16 features on the device with float32 ones of the CPU.

    n roundings by up to 2^-9 turn a vector by sqrt(n) * 2^-9.
    """
    backbone, images = lived_in_backbone(arch), noise_images(place)
    with exact_float32():
        expected = forward(backbone.network(), images)
        on_cpu = forward(in_bfloat16(backbone.network()), images)
        found = forward(frozen_network(replace(backbone, precision="bfloat16")), images).cpu()
    bound = BFLOAT16_ROUNDINGS * 2.0**-18 / 2  # 1 - cos(angle)
    differences = Differences()
    for name, other in (("1 - cosine with float32", expected), ("... with the CPU", on_cpu)):
        cosine = cosine_similarity(found.double(), other.double()).min()
        differences.add(name, float(1 - cosine), 2 * bound)
    return differences.checked()


def lived_in_backbone(arch: str, precision: Precision = "float32") -> Backbone:
    """Return a random backbone whose norms have means, variances and scales of their own."""
    backbone = random_backbone(arch=arch, stem="imagenet", seed=0)
    generator = torch.Generator().manual_seed(1)
    for name, tensor in backbone.state_dict.items():
        if name.endswith(("running_mean", "bn1.bias", "bn2.bias")):
            tensor.copy_(0.1 * torch.randn(tensor.shape, generator=generator))
        elif name.endswith(("running_var", "bn1.weight", "bn2.weight")):
            tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
    return replace(backbone, precision=precision)


def noise_images(place: Place) -> Tensor:
    """Return normalized images (n, 3, H, W) of noise on the CPU."""
    shape = (4, 3, 64, 64) if place.small else (16, 3, 224, 224)
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def check_nearest(place: Place) -> Facts:
    """Compare nearest-neighbor votes in float32 with those of one product in float64 on the CPU.

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
    with exact_float32():
        votes = knn_scores(
            bank, queries, num_classes=classes, num_neighbors=neighbors, temperature=temperature
        )
    differences = Differences()
    bound = roundings(torch.float32, 4 * 512**0.5 / temperature)
    differences.add("votes", relative_difference(votes, expected), bound)
    return differences.checked()


def check_heads(place: Place) -> Facts:
    """Compare linear heads after twenty steps on the device with float64 ones of the CPU.

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
    device = torch.device(place.device)
    with exact_float32():
        found = HeadOptimizer(heads, training, device)
        expected = HeadOptimizer(doubled, training, torch.device("cpu"))
        for step, (features, labels) in enumerate(batches):
            losses = found.step(features.to(device), labels.to(device), step / steps)
            exact = expected.step(features.double(), labels, step / steps)
    differences, bound = Differences(), roundings(torch.float32, steps * (size + width) ** 0.5)
    differences.add("losses", relative_difference(losses, exact), bound)
    for name, ours, theirs in (
        ("weights", found.heads().weight, expected.heads().weight),
        ("biases", found.heads().bias, expected.heads().bias),
    ):
        differences.add(name, relative_difference(ours, theirs), bound)
    return differences.checked()


def measure_features(arch: str, precision: Precision, place: Place) -> Facts:
    """Measure the images per second of frozen features, of pixels that are in memory.

    No image is read or decoded. The pixels are normalized and uploaded as in an extraction.
    """
    device = torch.device(place.device)
    batch, calls = (4, 1) if place.small else (256, 10)
    px = 64 if place.small else 224
    backbone = replace(random_backbone(arch=arch, stem="imagenet", seed=0), precision=precision)
    network = frozen_network(backbone)
    generator = torch.Generator().manual_seed(5)
    raw = torch.randint(256, (batch, 3, px, px), dtype=torch.uint8, generator=generator)
    pixels = normalize_pixels(raw, backbone.input)
    uploaded = pixels.to(device)

    def extract() -> None:
        forward(network, normalize_pixels(raw, backbone.input)).cpu()

    whole, memory = with_peak_memory(
        partial(seconds_per_call, extract, device, warm_up=3, calls=calls), device
    )
    alone = seconds_per_call(partial(forward, network, uploaded), device, warm_up=3, calls=calls)
    return {
        "images/s": batch / whole,
        "images/s of pixels on the device": batch / alone,
        "images per batch": float(batch),
        "px": float(px),
        "peak memory GB": memory,
        "pixels": "generated in memory: no disk and no decoding is measured",
    }


def measure_probe(place: Place) -> Facts:
    """Measure the crops per second that train linear heads of seven rates on a frozen ResNet-50.

    The crops are in memory; none is decoded.
    """
    device = torch.device(place.device)
    batch, calls, classes = (4, 1, 10) if place.small else (256, 10, 1000)
    px = 64 if place.small else 224
    precision: Precision = "float32" if place.small else "bfloat16"
    backbone = random_backbone(arch="resnet50", stem="imagenet", seed=0)
    network = frozen_network(replace(backbone, precision=precision))
    rates = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    training = ProbeTraining(learning_rates=rates, steps=100, batch_size=batch)
    heads = new_heads(rates, classes, backbone.feature_dim, training.weight_std, seed=0)
    optimizer = HeadOptimizer(heads, training, device)
    pixels = torch.randn(batch, 3, px, px, generator=torch.Generator().manual_seed(6))
    pixels = pixels if place.small else pixels.pin_memory()
    labels = torch.arange(batch) % classes

    def step() -> None:
        optimizer.step(forward(network, pixels), labels.to(device), 0.5)

    seconds = seconds_per_call(step, device, warm_up=3, calls=calls)
    return {
        "crops/s": batch / seconds,
        "precision": precision,
        "crops": "generated in memory: no disk and no decoding is measured",
    }
