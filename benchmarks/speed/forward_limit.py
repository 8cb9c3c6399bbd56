"""Rates of a frozen network and of a linear probe on its features, beside those of its pixels.

Both limit what reads images. On a CPU the cores that make pixels also compute the network, so their
times add up; beside a GPU all cores make pixels while it computes.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from transfer.backbone import InputFormat, Precision, random_backbone
from transfer.frozen.head_optimizer import HeadOptimizer, new_heads
from transfer.frozen.network import device, forward, frozen_network
from transfer.frozen.probe_training import ProbeTraining

NUM_CLASSES = 1_000
"""Classes of the probe: those of ImageNet-1k."""
FEATURES_PER_STEP = 256
"""Images of an optimizer step of the probe."""
STEPS = 4
"""Optimizer steps that are timed together, since one takes a few milliseconds."""
CPU_BFLOAT16 = ("amx_bf16", "avx512_bf16", "bf16")
"""Instructions that a CPU may have for products in bfloat16."""

Work = Callable[[], object]


@dataclass(frozen=True)
class Timed:
    """Work to time, and how many images it is for."""

    work: Work
    num_images: int


def precisions(where: torch.device) -> tuple[Precision, ...]:
    """Return the arithmetics in which a device multiplies by instructions of its own."""
    if where.type == "cuda":
        supported = torch.cuda.is_bf16_supported()
    else:
        known = torch.cpu.get_capabilities()
        supported = any(known.get(name) for name in CPU_BFLOAT16)
    return ("float32", "bfloat16") if supported else ("float32",)


def network_work(arch: str, crop_px: int, batch_size: int) -> dict[str, Timed]:
    """Return the forward pass of a batch in each arithmetic, and steps of one linear probe.

    Images and features lie on the device.
    """
    where = device()
    form = InputFormat(size_px=crop_px)
    backbone = random_backbone(arch=arch, stem="imagenet", seed=0, input=form)
    shape = (batch_size, 3, crop_px, crop_px)
    images = torch.randn(shape).to(where, memory_format=torch.channels_last)
    work: dict[str, Timed] = {}
    for precision in precisions(where):
        network = frozen_network(replace(backbone, precision=precision))
        work[precision] = Timed(partial(forward, network, images), batch_size)
    work["probe"] = probe_work(backbone.feature_dim, where)
    return work


def probe_work(width: int, where: torch.device) -> Timed:
    """Return optimizer steps of one linear probe on features of C = `width` dimensions."""
    training = ProbeTraining(learning_rates=(0.1,), batch_size=FEATURES_PER_STEP, steps=STEPS)
    heads = new_heads(training.learning_rates, NUM_CLASSES, width, training.weight_std, seed=0)
    optimizer = HeadOptimizer(heads, training, where)
    features = torch.rand(FEATURES_PER_STEP, width).to(where)
    labels = (torch.arange(FEATURES_PER_STEP) % NUM_CLASSES).to(where)

    def train() -> None:
        for step in range(STEPS):
            optimizer.step(features, labels, step / STEPS)

    return Timed(train, STEPS * FEATURES_PER_STEP)


def in_turn(*rates: float) -> float:
    """Return images/s of work that is done one after the other at these rates."""
    return 1 / sum(1 / rate for rate in rates)


def limit(name: str, pixels: float, network: float, where: torch.device) -> str:
    """Return which side limits work that reads images, with the rates of both.

    pixels: images/s of one core. network: images/s of the network and what is trained on it, on one
    core or on the GPU.
    """
    if where.type == "cuda":
        cores = len(os.sched_getaffinity(0))
        pixels, whose = pixels * cores, f"{cores} cores, the GPU"
        together = min(pixels, network)
    else:
        whose, together = "one core, the network on it", in_turn(pixels, network)
    slower = "the forward pass" if network < pixels else "decoding and cropping"
    return (
        f"{name}: {slower} is the limit; pixels {pixels:,.0f} images/s on {whose} {network:,.0f}, "
        f"together {together:,.0f}"
    )


def limits(crops: float, evaluated: float, rates: dict[str, float], where: torch.device) -> str:
    """Return a line for extraction and one for probe training in each arithmetic.

    crops, evaluated: images/s of one core that makes random crops, or evaluation images. rates:
    images/s of `network_work`.
    """
    lines = []
    for precision in precisions(where):
        passes = rates[precision]
        lines.append(limit(f"extraction in {precision}", evaluated, passes, where))
        trained = in_turn(passes, rates["probe"])
        lines.append(limit(f"probe training in {precision}", crops, trained, where))
    return "\n".join(lines)
