"""SimSiam against its equations by other routes: Chen & He, arXiv:2011.10566."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pretrain.command import parse
from pretrain.data.listing import find_images
from pretrain.loop import Training, training_step
from pretrain.methods.simsiam import SimSiam, simsiam_loss
from pretrain.recipes.simsiam import SimSiamConfig
from pretrain.run import prepare
from pretrain.running.processes import Process


def tiny_simsiam(**changes: Any) -> Any:
    """SimSiam on a linear backbone of 3x4x4 images."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(48, 12))
    settings = {"hidden_dim": 16, "predictor_dim": 4, "embedding_dim": 8}
    return SimSiam(backbone, 12, SimSiamConfig(**(settings | changes)))


def two_views(n: int = 5) -> list[Tensor]:
    """2 of (n, 3, 4, 4)."""
    return list(torch.randn(2, n, 3, 4, 4, generator=torch.Generator().manual_seed(1)))


def rows() -> list[Tensor]:
    """p1, p2, z1, z2 (n, d)."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(6, 8, generator=generator) for _ in range(4)]


def test_loss_is_the_mean_of_both_negative_cosines_written_out() -> None:
    p1, p2, z1, z2 = rows()
    expected = [
        -(a @ b / a.norm() / b.norm()) / 2
        for predictions, targets in ((p1, z2), (p2, z1))
        for a, b in zip(predictions, targets, strict=True)
    ]
    torch.testing.assert_close(simsiam_loss(p1, p2, z1, z2), torch.stack(expected).sum() / 6)


def test_a_step_predicts_each_view_from_the_other_with_the_targets_constant() -> None:
    method, twin, views = tiny_simsiam(), tiny_simsiam(), two_views()
    z1, z2 = (twin.encoder(images) for images in views)
    with torch.no_grad():
        targets = [rows.clone() for rows in (z1, z2)]
    expected = simsiam_loss(twin.predictor(z1), twin.predictor(z2), *targets)
    loss = method(views, 0.5)["loss"]
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    for ours, theirs in zip(method.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_the_predictor_keeps_its_rate_while_that_of_the_encoder_falls(image_folder: Path) -> None:
    options = ["--data", str(image_folder), "--out", str(image_folder.parent), "--batch-size", "4"]
    cpu = Process(device=torch.device("cpu"))
    job = prepare("simsiam/smoke", parse("simsiam/smoke", options), cpu, find_images(image_folder))
    job = replace(job, method=tiny_simsiam())
    training = Training(job)
    scheduled, fixed = training.optimizer.param_groups
    assert {*fixed["params"]} == {*job.method.get_submodule("predictor").parameters()}
    assert {*scheduled["params"]} == {*job.method.get_submodule("encoder").parameters()}
    rates = []
    for batch in job.feed.batches(0, job.num_steps):
        small = batch._replace(views=[view[:, :, :4, :4] for view in batch.views])
        training_step(job, training, job.method, small)
        rates.append((scheduled["lr"], fixed["lr"]))
    assert [rate for _, rate in rates] == [job.recipe.learning_rate] * job.num_steps
    assert rates[-1][0] < 0.6 * rates[0][0]
