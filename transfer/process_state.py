"""Run public functions with torch's default settings.

A training loop may call `evaluate` inside autocast, without gradients, or with another default
dtype or device. This must not change a result.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def torch_defaults() -> Iterator[None]:
    """Run the block or decorated function with torch's default settings.

    The settings are restored afterwards. Autocast and inference mode are off, gradients can be
    computed, and new tensors are float32 on the CPU. Products of float32 matrices are not rounded
    to TF32 or bfloat16, and Pillow refuses truncated images.

    Settings that may change only the last digits are not reset: the number of threads,
    deterministic algorithms, and cuDNN's choices (the record says whether convolutions use TF32).
    """
    import torch
    from PIL import ImageFile

    from pretrain.running.torch_versions import autocast_devices

    dtype, truncated = torch.get_default_dtype(), ImageFile.LOAD_TRUNCATED_IMAGES
    with ExitStack() as stack:
        for device in autocast_devices():
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
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


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one torch thread in the block, for a fixed order of sums."""
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


@contextmanager
def _exact_products() -> Iterator[None]:
    """Compute products of float32 matrices in float32 inside the block."""
    import torch

    backends: list[Any] = []
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # the caller has set only one backend, by attributes since torch 2.9
        backends = [getattr(torch.backends, name).matmul for name in ("cuda", "mkldnn")]
        precision = "highest"
    precisions = [backend.fp32_precision for backend in backends]
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        for backend, backend_precision in zip(backends, precisions, strict=True):
            backend.fp32_precision = backend_precision
