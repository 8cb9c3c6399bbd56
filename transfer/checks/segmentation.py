"""Checks of the segmentation network on the device against the CPU, and the time of a step."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from transfer.backbone import random_backbone
from transfer.checks.comparison import (
    Differences,
    exact_float32,
    relative_difference,
    roundings,
    worst_relative_difference,
)
from transfer.checks.fixed_detector import fill, settle_at_once
from transfer.checks.report import Facts, Place
from transfer.checks.speed import first_that_fits, seconds_per_call, with_peak_memory
from transfer.checks.training_step import OnePass, training_step
from transfer.finetuning.gpu import fused, measured_convolutions
from transfer.finetuning.gpu import place as place_network
from transfer.finetuning.schedule import Precision
from transfer.segmentation.network import FCN, build_network, load_backbone
from transfer.segmentation.recipe import VOC_FCN
from transfer.segmentation.samples import Sample

NUM_CLASSES = 21
SMALL_BATCH = 4
"""Factor by which batch norm over two small images enlarges the roundings of a network."""
LOW_PRECISION: dict[Precision, float] = {"bfloat16": 0.05, "float16": 0.01}
"""Relative difference of the loss from that in float32: a mean over all pixels of a logarithm of
probabilities. 55 layers round twice each, by half an eps at most; sqrt(110) * eps / 2 of logits of
about one is 0.04 in bfloat16, and an eighth of it in float16."""


def check_answers(place: Place) -> Facts:
    """Compare loss, gradients and logits on the device with those of the CPU, in float64 and 32.

    Any fault in float64 is larger than 1e-9, and roundings are much smaller.
    """
    device, differences = torch.device(place.device), Differences()
    with exact_float32():
        expected = fixed_answer(torch.device("cpu"), torch.float64, place.folder)
        for name, dtype, bound in (
            ("float64", torch.float64, 1e-9),
            ("float32", torch.float32, roundings(torch.float32) * SMALL_BATCH),
        ):
            loss, gradients, logits = fixed_answer(device, dtype, place.folder)
            differences.add(f"{name} loss", relative_difference(loss, expected[0]), bound)
            differences.add(f"{name} logits", relative_difference(logits, expected[2]), bound)
            if dtype == torch.float64:  # in float32 a unit near zero may be on or off
                worst = worst_relative_difference(gradients, expected[1])
                differences.add(f"{name} gradients", worst, bound)
    return differences.checked()


def fixed_answer(
    device: torch.device, dtype: torch.dtype, folder: Path
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Return loss, gradients and then logits in eval mode, of fixed weights and samples."""
    network = new_network("resnet18", folder, px=65, head_channels=32)
    fill(network.state_dict())
    network.to(dtype)
    place_network(network, device)
    settle_at_once(network)
    samples = [sample.to(device) for sample in fixed_samples(2, 65)]
    loss = network.train()(samples)["loss_seg"]
    loss.backward()
    gradients = {
        name: values.grad for name, values in network.named_parameters() if values.grad is not None
    }
    with torch.no_grad():
        images = torch.stack([sample.image for sample in samples])
        logits = network.eval().logits((images - network.mean) / network.std)
    return loss.detach(), gradients, logits


def check_low_precision(place: Place) -> Facts:
    """Compare the first loss under autocast with that in float32; gradients must be finite."""
    device, differences = torch.device(place.device), Differences()
    with exact_float32():
        expected = first_pass(torch.device("cpu"), "float32", place.folder)
        for precision, bound in LOW_PRECISION.items():
            if precision == "float16" and place.device == "cpu":
                differences.facts["float16"] = "needs CUDA: trainings on a CPU refuse it"
                continue
            found = first_pass(device, precision, place.folder)
            differences.add(f"{precision} loss", abs(found.loss / expected.loss - 1), bound)
            differences.require(f"{precision} gradients", found.finite, "not finite")
    return differences.checked()


def first_pass(device: torch.device, precision: Precision, folder: Path) -> OnePass:
    """Return the loss before the first step, and whether the gradients are finite."""
    network = new_network("resnet18", folder, px=65, head_channels=32)
    place_network(network, device)
    samples = [sample.to(device) for sample in fixed_samples(2, 65)]
    return OnePass.of(network.train(), samples, device, precision)


def measure_steps(place: Place) -> Facts:
    """Measure the seconds of a training step at the recipe's crop size, without loading images."""
    facts: Facts = {}
    for precision in ("float32", "bfloat16"):
        measure = partial(_measure_batch, place, precision)
        facts |= first_that_fits(measure, (2,) if place.small else (16, 8, 4, 2))
    return facts


def _measure_batch(place: Place, precision: Precision, images: int) -> Facts:
    device = torch.device(place.device)
    px = 65 if place.small else VOC_FCN.crop_px
    arch, channels = ("resnet18", 32) if place.small else ("resnet50", VOC_FCN.head_channels)
    network = new_network(arch, place.folder, px=px, head_channels=channels)
    place_network(network, device)
    optimizer = torch.optim.SGD(
        network.train().parameters(), lr=1e-3, momentum=0.9, fused=fused(network)
    )
    samples = [sample.to(device) for sample in fixed_samples(images, px)]
    step = partial(training_step, network, optimizer, samples, device, precision)
    calls = 1 if place.small else 5
    with measured_convolutions(device, one_size=True):
        seconds, memory = with_peak_memory(
            partial(seconds_per_call, step, device, warm_up=calls, calls=calls), device
        )
    return {
        f"seconds per iteration in {precision}": seconds,
        f"images per pass in {precision}": float(images),
        f"images/s in {precision}": images / seconds,
        f"peak memory GB in {precision}": memory,
    }


def new_network(arch: str, folder: Path, *, px: int, head_channels: int) -> FCN:
    """Return a network on a random backbone, as it is before training."""
    recipe = replace(VOC_FCN, crop_px=px, head_channels=head_channels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = build_network(
            recipe, arch=arch, num_classes=NUM_CLASSES, norm="BN", log=folder / "mmseg.log"
        )
    backbone = random_backbone(arch=arch, stem="imagenet", seed=0)
    load_backbone(network, backbone.state_dict)
    return network


def fixed_samples(count: int, px: int) -> list[Sample]:
    """Return crops of noise, with classes in squares of 8 px and a border that is ignored."""
    generator = torch.Generator().manual_seed(7)
    samples = []
    for _ in range(count):
        squares = torch.randint(NUM_CLASSES, (px // 8 + 1,) * 2, generator=generator)
        mask = squares.repeat_interleave(8, 0).repeat_interleave(8, 1)[:px, :px].to(torch.uint8)
        mask[:2] = 255
        image = torch.randint(256, (3, px, px), dtype=torch.uint8, generator=generator)
        samples.append(Sample(image=image, mask=mask))
    return samples
