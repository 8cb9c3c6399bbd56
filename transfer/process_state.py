"""Torch's own settings for a public function, whatever the process of its caller has set.

A training loop calls `evaluate` inside autocast, without gradients, or with another default dtype
or device. None of it may change a result.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def torch_defaults() -> Iterator[None]:
    """Run the block, or the decorated function, with torch's default settings; restore them after.

    Autocast and inference mode are off, gradients can be computed, new tensors are float32 on the
    CPU, products of float32 matrices are not rounded to TF32 or bfloat16, and Pillow refuses
    truncated images. Not reset is what may
    change the last digits alone: the number of threads, deterministic algorithms, and cuDNN's
    choices (TF32 convolutions are named in the record).
    """
    import torch
    from PIL import ImageFile

    from pretrain.running.torch_versions import autocast_devices

    dtype, truncated = torch.get_default_dtype(), ImageFile.LOAD_TRUNCATED_IMAGES
    autocast = {device: torch.is_autocast_enabled(device) for device in autocast_devices()}
    with ExitStack() as stack:
        stack.callback(_set_autocast, autocast)
        _set_autocast(dict.fromkeys(autocast, False))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.device("cpu"))
        stack.enter_context(_exact_products())
        torch.set_default_dtype(torch.float32)
        ImageFile.LOAD_TRUNCATED_IMAGES = False
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            ImageFile.LOAD_TRUNCATED_IMAGES = truncated


def _set_autocast(enabled: dict[str, bool]) -> None:
    """Switch autocast on or off for each device, where it is not so already."""
    import torch

    for device, value in enabled.items():
        if torch.is_autocast_enabled(device) != value:
            torch.set_autocast_enabled(device, value)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the block with one thread of torch, so that sums have the same order in any process."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _exact_products() -> Iterator[None]:
    """Compute products of float32 matrices in float32 within the block."""
    import torch

    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # the caller has set one backend alone, by attributes since torch 2.9
        backends: list[Any] = [getattr(torch.backends, name).matmul for name in ("cuda", "mkldnn")]
        precisions = [backend.fp32_precision for backend in backends]
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            for backend, precision in zip(backends, precisions, strict=True):
                backend.fp32_precision = precision
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
