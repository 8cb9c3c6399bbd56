"""Compare a pre-training step with a reference time, the floor.

The floor sums the time for the FLOPs and memory traffic of convolutions and batch
norms in bfloat16. Color augmentation, loss and optimizer are not counted. A convolution may take
longer than a large matrix product, so the floor is not a strict lower bound.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock, Bottleneck

from benchmarks.gpu.timing import Quantities, seconds_per_call
from pretrain.job import Job
from pretrain.parts.resnet import build_resnet
from pretrain.parts.view import Stem

IMAGES = 256
"""Batch size for which the weights are read once."""
SIDE = 8192
"""Size of the matrices whose product is timed on a GPU."""


def floor_us(
    arch: str, stem: Stem, px: int, flops: float, bytes_per_s: float, *, unfused: bool = False
) -> tuple[float, float]:
    """Return the floor in µs per view of a ResNet in bfloat16.

    The first value is for a forward and a backward pass, the second for a forward pass.

    flops, bytes_per_s: the device's throughput in matrix products and copies. A convolution takes
    the maximum of the times for its FLOPs and its bytes, in the forward pass and for each of the
    two gradients. A batch norm reads or writes its maps three times forward, one of them for the
    statistics, and five times in the backward pass; this includes ReLU and the residual sum.
    unfused: also count the traffic that remains with fused norms. In the forward pass, a residual
    sum reads the shortcut, and the stem's pooling reads and writes maps. In the backward pass, the
    sum reads its output as the mask of ReLU, and writes and reads the masked gradient; the pooling
    has the same traffic as in the forward pass.
    """
    with torch.device("meta"):
        network, _ = build_resnet(arch, stem)
    convolution_s, sizes = 0.0, Counter[str]()

    def add(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        nonlocal convolution_s
        if isinstance(layer, nn.Conv2d):
            weights = layer.weight.numel()
            moved = 2 * (inputs[0].numel() + output.numel() + weights / IMAGES)
            products = 2 * output.numel() * weights / layer.out_channels
            convolution_s += max(products / flops, moved / bytes_per_s)
        elif isinstance(layer, nn.BatchNorm2d):
            sizes["norm"] += 2 * output.numel()
        elif isinstance(layer, BasicBlock | Bottleneck):
            sizes["block"] += 2 * output.numel()
        elif isinstance(layer, nn.MaxPool2d):
            sizes["pooling"] += 2 * (inputs[0].numel() + output.numel())

    for layer in network.modules():
        layer.register_forward_hook(add)
    network.eval()(torch.empty(1, 3, px, px, device="meta"))
    forward, total = 3 * sizes["norm"], 8 * sizes["norm"]
    if unfused:
        forward += sizes["block"] + sizes["pooling"]
        total += 4 * sizes["block"] + 2 * sizes["pooling"]
    return (
        1e6 * (3 * convolution_s + total / bytes_per_s),
        1e6 * (convolution_s + forward / bytes_per_s),
    )


def device_throughput(device: torch.device) -> tuple[float, float]:
    """Return FLOP/s of a bfloat16 matrix product and bytes/s of a copy."""
    side = SIDE if device.type == "cuda" else SIDE // 32
    matrix = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    product_s = seconds_per_call(lambda: matrix @ matrix, device, warm_up=3, calls=10)
    large = torch.empty(4 * side**2, device=device, dtype=torch.bfloat16)
    copied = torch.empty_like(large)
    copy_s = seconds_per_call(lambda: copied.copy_(large), device, warm_up=3, calls=10)
    return 2 * side**3 / product_s, 2 * large.nbytes / copy_s


def count_views(job: Job, step: Callable[[], object]) -> tuple[float, float]:
    """Count the views of a step with and without a backward pass.

    Small views count as a fraction, by area.
    """
    views = Counter[bool]()

    def count(_: nn.Module, inputs: tuple[Tensor]) -> None:
        fraction = (inputs[0].shape[-1] / job.recipe.views.size_px) ** 2
        views[torch.is_grad_enabled()] += len(inputs[0]) * fraction  # type: ignore[assignment]

    networks = [module for module in job.method.modules() if isinstance(module, ResNet)]
    handles = [network.register_forward_pre_hook(count) for network in networks]
    step()
    for handle in handles:
        handle.remove()
    return views[True], views[False]


def compare_with_floor(
    job: Job, views: tuple[float, float], seconds: float, plain_s: float
) -> Quantities:
    """Compare a step with its floor and with a plain supervised step.

    views: number of views of a step with and without a backward pass. plain_s: seconds of the plain
    step.
    """
    recipe, (trained, keys) = job.recipe, views
    throughput = device_throughput(job.process.device)
    floor = partial(floor_us, recipe.arch, recipe.stem, recipe.views.size_px, *throughput)
    (trained_us, key_us), (trained_unfused_us, key_unfused_us) = floor(), floor(unfused=True)
    minimum_us = trained * trained_us + keys * key_us
    unfused_us = trained * trained_unfused_us + keys * key_unfused_us
    return {
        "TFLOP/s of a product": throughput[0] / 1e12,
        "TB/s of a copy": throughput[1] / 1e12,
        "floor ms": minimum_us / 1e3,
        "floor ms, residual sums and pooling counted": unfused_us / 1e3,
        "times the floor": 1e6 * seconds / minimum_us,
        "ms of a plain supervised step": 1e3 * plain_s,
        "times the plain step": seconds / plain_s,
        "times the plain step, at the floor": minimum_us / (recipe.batch_size * trained_us),
    }
