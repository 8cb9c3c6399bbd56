"""BYOL and SimSiam against their equations: arXiv:2006.07733 and arXiv:2011.10566."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from pretrain.data.listing import find_images
from pretrain.loop import Training, training_step
from pretrain.recipes import RECIPES
from tests.tiny_methods import tiny_batch, tiny_job, tiny_method


@pytest.mark.parametrize("name", ["byol", "simsiam"])
def test_a_step_predicts_each_view_from_the_other_with_the_targets_constant(name: str) -> None:
    method, twin = tiny_method(name), tiny_method(name)
    views = tiny_batch(method).views
    z1, z2 = (twin.encoder(images) for images in views)
    t1, t2 = (z.detach().clone() for z in (z1, z2))  # byol's target encoder is still a copy
    p1, p2 = twin.predictor(z1), twin.predictor(z2)
    squares = [(normalize(p) - normalize(t)).square() for p, t in ((p1, t2), (p2, t1))]
    expected = torch.stack(squares).sum() / len(p1)
    if name == "simsiam":  # the squared distance of unit vectors is 2 less twice their cosine
        expected = expected / 4 - 1
    loss = method(views, 0.5)["loss"]
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    for ours, theirs in zip(method.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_the_predictor_keeps_its_rate_while_that_of_the_encoder_falls(
    image_folder: Path, tmp_path: Path
) -> None:
    recipe = replace(RECIPES["simsiam/smoke"], batch_size=4)
    job = tiny_job(tiny_method("simsiam"), recipe, find_images(image_folder), tmp_path / "run")
    training = Training(job)
    scheduled, fixed = training.optimizer.param_groups
    assert {*fixed["params"]} == {*job.method.get_submodule("predictor").parameters()}
    assert {*scheduled["params"]} == {*job.method.get_submodule("encoder").parameters()}
    rates = []
    for batch in job.feed.batches(0, job.num_steps):
        training_step(job, training, job.method, batch)
        rates.append((scheduled["lr"], fixed["lr"]))
    assert [rate for _, rate in rates] == [job.recipe.learning_rate] * job.num_steps
    assert rates[-1][0] < 0.6 * rates[0][0]
