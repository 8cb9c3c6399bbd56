"""Steps with compiled networks against steps without.

On CPUs, test_compilation compares them.
"""

from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pretrain.loop import Training, training_step, wrap_network
from tests.gpu.findings import Findings, exact_float32
from tests.gpu.rounding import perturb
from tests.gpu.started import Workspace, small_images, smooth, start_job

COMPILED = ("moco", "swav", "loocpp")
"""Methods with a queue and momentum encoder, two view sizes, several heads."""
NUM_STEPS = 2


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own modules
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_network(name: str, tmp_path: Path, findings: Findings) -> None:
    """Two steps in float32 give the losses and weights without --compile."""
    workspace = Workspace(device=torch.device("cuda"), folder=tmp_path)
    with exact_float32():
        expected = trained(workspace, name)
        moved = trained(workspace, name, changed=True)
        torch._dynamo.reset()
        try:
            result = trained(workspace, name, "--compile")
            counters = torch._dynamo.utils.counters
            graphs = counters["stats"]["unique_graphs"]
            breaks = sum(counters["graph_break"].values())
        finally:
            torch._dynamo.reset()
    findings.require("graphs", graphs > 0, f"--compile has compiled nothing, {breaks} breaks")
    findings.require("breaks", breaks == 0, f"{breaks} graph breaks")
    findings.compare(result, expected, [moved])


def trained(
    workspace: Workspace, name: str, *options: str, changed: bool = False
) -> dict[str, Tensor]:
    """Return losses, weights and buffers after two steps of a smoke recipe.

    changed: start from weights that are changed by one unit of rounding.
    """
    args = ["--steps", str(NUM_STEPS), "--precision", "float32", *options]
    job = start_job(f"{name}/smoke", workspace, small_images(workspace), *args)
    smooth(job.method)
    if changed:
        generator = torch.Generator().manual_seed(1)
        perturb(job.method.parameters(), torch.float32, generator)
    training = Training(job)
    network = wrap_network(job, training.method)
    with closing(job.feed.batches(0, NUM_STEPS)) as batches:
        for batch in batches:
            training_step(job, training, network, batch)
    losses = training.window.state_dict()["loss"]
    state = {key: values.cpu() for key, values in training.method.state_dict().items()}
    return {"loss": losses, **state}
