"""Compiled networks against eager ones.

The backend aot_eager captures and differentiates graphs as on a GPU and runs them with the usual
kernels. In float64 only the order of a few sums may differ. SwAV's codes are float32 in any case,
so only its first step is compared.
"""

import inspect
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from pretrain.command import Command, parse
from pretrain.data.listing import find_images
from pretrain.job import Job, prepare
from pretrain.loop import compile_networks, train
from pretrain.method import Method
from pretrain.parts.sync_bn import FusedBatchNorm
from pretrain.running.processes import Process
from pretrain.running.torch_versions import data_parallel
from tests.rounding import assert_equal_up_to_rounding
from tests.tiny_methods import forward, stop_after, tiny_batch, tiny_method
from tests.two_processes import two_processes

KINDS = {
    "moco": "a momentum encoder and a queue",
    "simsiam": "one encoder that gets one view after the other",
    "swav": "views of two sizes",
    "mocopp": "heads that branch within the backbone",
    "supervised": "labels",
}
NEEDS_COMPILER = pytest.mark.skipif(
    shutil.which("g++") is None, reason="torch.compile needs g++ on a CPU"
)


def steps(
    method: Method,
    network: nn.Module,
    *,
    rank: int = 0,
    num_steps: int = 2,
    dtype: torch.dtype = torch.float64,
) -> dict[str, Any]:
    """The losses of the steps, the last gradients, and the final state."""
    method.to(dtype).train()
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.01)
    losses = []
    for step in range(num_steps):
        torch.manual_seed(step)
        batch = tiny_batch(method)
        batch = batch._replace(views=[view.to(dtype) + rank for view in batch.views])
        optimizer.zero_grad()
        loss = forward(network, batch, progress=0.5)["loss"]
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    gradients = {name: p.grad for name, p in method.named_parameters() if p.grad is not None}
    return {"losses": losses, "gradients": gradients, "state": method.state_dict()}


def breaks() -> int:
    """The number of graph breaks since the last call."""
    number = sum(counters["graph_break"].values())
    counters.clear()
    return number


@pytest.mark.slow
# torch looks at the gradient of what enters a graph; between two stages that is no leaf
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("name", KINDS)
def test_a_compiled_method_computes_the_same_without_a_graph_break(name: str) -> None:
    torch._dynamo.reset()
    eager, compiled = tiny_method(name), tiny_method(name)
    compile_networks(compiled, backend="aot_eager")
    breaks()
    options: dict[str, Any] = {"num_steps": 1, "dtype": torch.float32} if name == "swav" else {}
    result = steps(compiled, compiled, **options)
    assert counters["frames"]["ok"] == counters["frames"]["total"] > 0
    assert breaks() == 0
    expected = steps(eager, eager, **options)
    if name == "swav":
        assert_equal_up_to_rounding(result, expected, magnitude=10)  # logits over 0.1
    else:
        torch.testing.assert_close(result, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(
    ("name", "changes"), [("jcl", {"covariance_ramp": "linear"}), ("moco", {}), ("swav", {})]
)
def test_nothing_is_compiled_after_the_first_step(name: str, changes: dict[str, Any]) -> None:
    """JCL's ramp changes with the progress of the run; MoCo skips metrics that are not read."""
    torch._dynamo.reset()
    method = tiny_method(name, **changes).train()
    compile_networks(method, backend="aot_eager")
    graphs = []
    for progress in (0.0, 0.3, 1.0):
        method.metrics_read = progress == 0.3
        counters.clear()
        forward(method, tiny_batch(method), progress=progress)["loss"].backward()
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] > 0
    assert graphs[1:] == [0, 0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_every_stage_is_compiled_if_all_share_the_limit_of_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In torch 2.11 and earlier, they do."""
    older = SimpleNamespace(signature=lambda _: inspect.Signature())
    monkeypatch.setattr("pretrain.running.torch_versions.inspect", older)
    torch._dynamo.reset()
    counters.clear()
    method = tiny_method("dino").train()
    with torch._dynamo.config.patch(cache_size_limit=8):
        compile_networks(method, by_stage=True, backend="eager")
        forward(method, tiny_batch(method))
    # of the target encoder, and of the encoder for large and for small views
    assert counters["stats"]["unique_graphs"] == 3 * 4


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=NEEDS_COMPILER)])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
# torch 2.6 saves its settings for inductor's processes, and says which it cannot save
@pytest.mark.filterwarnings("ignore:Skipping serialization of")
def test_a_compiled_run_resumes_as_one_that_never_stopped(
    backend: str, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pretrain.loop.compile_networks", partial(compile_networks, backend=backend)
    )

    def start(out: str) -> Job:
        (tmp_path / out).mkdir(exist_ok=True)
        args = ["--data", str(image_folder), "--out", str(tmp_path / out), "--batch-size", "8"]
        args += ["--steps", "5", "--read-every-steps", "2", "--compile"]
        command: Command[Any] = parse("moco/smoke", args)
        process = Process(device=torch.device("cpu"))
        return prepare("moco/smoke", command, process, find_images(image_folder))

    torch._dynamo.reset()
    counters.clear()
    whole = start("whole")
    train(whole)
    # of both encoders: not again after an epoch of 20 images, or when metrics are not read
    assert counters["stats"]["unique_graphs"] == 2
    with stop_after(2):
        assert train(start("stopped")) == 2
    resumed = start("stopped")
    train(resumed)
    expected = whole.method.state_dict()
    torch.testing.assert_close(resumed.method.state_dict(), expected, rtol=0, atol=0)


def measure_losses(rank: int, num_processes: int) -> dict[str, Any]:
    """Two steps in each mode."""
    results: dict[str, Any] = {}
    for mode in ("eager", "compiled"):
        method = tiny_method("simsiam")
        assert any(isinstance(module, FusedBatchNorm) for module in method.modules())
        method.double()
        if mode == "compiled":
            compile_networks(method, by_stage=True, backend="aot_eager")
            counters.clear()
        network = data_parallel(method, torch.device("cpu"))
        results[mode] = steps(method, network, rank=rank)
    graphs = torch.tensor(counters["stats"]["unique_graphs"])
    return {**results, "graphs": graphs, "breaks": torch.tensor(breaks())}


@pytest.mark.slow
def test_two_processes_compile_their_synchronous_norms_without_a_graph_break(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("two")
    for half in two_processes("tests.pretrain.test_compilation", folder):
        assert half["breaks"] == 0
        assert half["graphs"] == 4  # one of each stage
        torch.testing.assert_close(half["compiled"], half["eager"], rtol=1e-8, atol=1e-9)
