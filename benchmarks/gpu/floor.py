"""What a pre-training step takes at least on a GPU, and a plain supervised step as a yardstick.

The floor adds up what convolutions and batch norms must compute and move in bfloat16. Coloring,
loss and optimizer are left out. A convolution may need longer than a large product of matrices, so
the floor is a yardstick, not a strict bound.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock, Bottleneck

from benchmarks.gpu.timing import Facts, seconds_per_call
from pretrain.job import Job
from pretrain.parts.resnet import build_resnet
from pretrain.parts.view import Stem

IMAGES = 256
"""Batch over which the weights are read once."""
SIDE = 8192
"""Rows and columns of the matrices whose product is timed on a GPU."""
NUM_CLASSES = 1000


def floor_us(
    arch: str, stem: Stem, px: int, flops: float, bytes_per_s: float, *, unfused: bool = False
) -> tuple[float, float]:
    """Return the least µs of one view of a ResNet in bfloat16: with a backward pass, and without.

    flops and bytes_per_s: what the device reaches in products and copies. A convolution takes the
    longer of its FLOPs and its bytes, in the forward pass and for both gradients. A batch norm
    passes over its maps three times forward, one of them for statistics, and five times backward;
    ReLU and residual sum are part of it. unfused: also count what fused norms still move. Forward,
    a residual sum reads the shortcut, and the pooling of the stem reads and writes maps. Backward,
    the sum reads its output as the mask of ReLU, and writes and reads the masked gradient; the
    pooling moves as much as before.
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
    forward, both = 3 * sizes["norm"], 8 * sizes["norm"]
    if unfused:
        forward += sizes["block"] + sizes["pooling"]
        both += 4 * sizes["block"] + 2 * sizes["pooling"]
    return (
        1e6 * (3 * convolution_s + both / bytes_per_s),
        1e6 * (convolution_s + forward / bytes_per_s),
    )


def reached(device: torch.device) -> tuple[float, float]:
    """Return FLOP/s of a bfloat16 product and bytes/s of a copy on a device."""
    side = SIDE if device.type == "cuda" else SIDE // 32
    matrix = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    product_s = seconds_per_call(lambda: matrix @ matrix, device, warm_up=3, calls=10)
    large = torch.empty(4 * side**2, device=device, dtype=torch.bfloat16)
    copied = torch.empty_like(large)
    copy_s = seconds_per_call(lambda: copied.copy_(large), device, warm_up=3, calls=10)
    return 2 * side**3 / product_s, 2 * large.nbytes / copy_s


def count_views(job: Job, step: Callable[[], object]) -> tuple[float, float]:
    """Return the views that a step passes through a ResNet: with a backward pass, and without.

    A small view counts by its area.
    """
    views = Counter[bool]()

    def count(_: nn.Module, inputs: tuple[Tensor]) -> None:
        share = (inputs[0].shape[-1] / job.recipe.views.size_px) ** 2
        views[torch.is_grad_enabled()] += len(inputs[0]) * share  # type: ignore[assignment]

    networks = [each for each in job.method.modules() if isinstance(each, ResNet)]
    handles = [network.register_forward_pre_hook(count) for network in networks]
    step()
    for handle in handles:
        handle.remove()
    return views[True], views[False]


def distances(job: Job, views: tuple[float, float], seconds: float, plain_s: float) -> Facts:
    """Return how far a step of some seconds is from its floor and from a plain supervised step.

    views: those of a step, with a backward pass and without. plain_s: seconds of the plain step.
    """
    recipe, (trained, keys) = job.recipe, views
    rates = reached(job.process.device)
    floor = partial(floor_us, recipe.arch, recipe.stem, recipe.views.size_px, *rates)
    (trained_us, key_us), (trained_unfused_us, key_unfused_us) = floor(), floor(unfused=True)
    least_us = trained * trained_us + keys * key_us
    unfused_us = trained * trained_unfused_us + keys * key_unfused_us
    return {
        "TFLOP/s of a product": rates[0] / 1e12,
        "TB/s of a copy": rates[1] / 1e12,
        "floor ms": least_us / 1e3,
        "floor ms, residual sums and pooling counted": unfused_us / 1e3,
        "times the floor": 1e6 * seconds / least_us,
        "ms of a plain supervised step": 1e3 * plain_s,
        "times the plain step": seconds / plain_s,
        "times the plain step, at the floor": least_us / (recipe.batch_size * trained_us),
    }


def plain_step_seconds(job: Job, *, warm_up: int, calls: int) -> float:
    """Return the seconds of a supervised step of as many images, that stay on the device.

    The network, its precision and its memory format are those of the job; nothing else is.
    """
    device = job.process.device
    torch.backends.cudnn.benchmark = device.type == "cuda"
    backbone, width = build_resnet(job.recipe.arch, job.recipe.stem)
    network = nn.Sequential(backbone, nn.Linear(width, NUM_CLASSES))
    network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    size = (job.recipe.batch_size, 3, *[job.recipe.views.size_px] * 2)
    images = torch.randn(size, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.arange(len(images), device=device) % NUM_CLASSES

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=job.dtype == torch.bfloat16):
            loss = cross_entropy(network(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return seconds_per_call(step, device, warm_up=warm_up, calls=calls)
