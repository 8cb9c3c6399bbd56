"""The private or version-dependent names of torch that this suite needs."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pretrain.running.torch_versions import autocast_devices, compile_module

NORM_KERNELS = {
    "batch_norm_stats": "input eps",
    "batch_norm_gather_stats_with_counts": (
        "input mean invstd running_mean running_var momentum eps counts"
    ),
    "batch_norm_elemt": "input weight bias mean invstd eps",
    "batch_norm_backward_reduce": "grad_out input mean invstd weight input_g weight_g bias_g",
    "batch_norm_backward_elemt": "grad_out input mean invstd weight sum_dy sum_dy_xmu count",
}
"""Kernels of synchronized batch norm -> names of their arguments."""


@pytest.mark.parametrize("name", NORM_KERNELS)
def test_norm_kernels_take_the_arguments_that_are_passed(name: str) -> None:
    schema = getattr(torch.ops.aten, name).default._schema
    assert " ".join(argument.name for argument in schema.arguments) == NORM_KERNELS[name]


def test_buffers_can_be_kept_from_a_broadcast() -> None:
    parameters = inspect.signature(DistributedDataParallel).parameters
    assert {"forward_sync_buffers", "broadcast_buffers"} & parameters.keys()
    assert {"device_ids", "gradient_as_bucket_view"} <= parameters.keys()


def test_a_compiled_module_computes_the_same() -> None:
    module, rows = nn.Linear(3, 2), torch.ones(4, 3)
    expected = module(rows)
    compile_module(module, backend="eager")
    assert torch.equal(module(rows), expected)


def test_autocast_can_be_read_for_every_device() -> None:
    assert {"cpu", "cuda"} <= set(autocast_devices())
    assert not any(map(torch.is_autocast_enabled, autocast_devices()))
