"""Every method: decreasing loss, gradients, state, resume and export."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from pretrain.__main__ import main
from pretrain.data.listing import find_images
from pretrain.data.views import ViewRecipe
from pretrain.job import Job
from pretrain.loop import Training, train, training_step
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.parts.queue import KeyQueue
from pretrain.parts.resnet import build_resnet
from pretrain.recipes import RECIPES
from tests.tiny_methods import (
    IDLE,
    LEARNING,
    forward,
    losses,
    stop_after,
    tiny_batch,
    tiny_config,
    tiny_job,
    tiny_method,
    write_images,
)
from transfer.encoders.opening import load_backbone

every_method = pytest.mark.parametrize("name", LEARNING)


def same_state(item: nn.Module, other: nn.Module) -> bool:
    a, b = item.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@every_method
def test_the_loss_and_all_that_is_logged_are_finite_scalars(name: str) -> None:
    method = tiny_method(name)
    metrics = forward(method, tiny_batch(method))
    assert metrics["loss"].dtype == torch.float32
    assert all(value.shape == () and value.isfinite() for value in metrics.values())
    assert [key for key, value in metrics.items() if value.requires_grad] == ["loss"]


@every_method
def test_training_lowers_the_loss(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # a queue would soon hold the keys of the very images that it is compared with
    monkeypatch.setattr(KeyQueue, "push", lambda *_: None)
    method = tiny_method(name)
    batch, losses = tiny_batch(method), []
    learning = [parameter for parameter in method.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(learning, lr=0.2)
    for step in range(8):
        torch.manual_seed(step)
        loss = forward(method, batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.3


@every_method
def test_gradients_reach_exactly_the_learned_parameters(name: str) -> None:
    method = tiny_method(name)
    forward(method, tiny_batch(method))["loss"].backward()
    followers = [module for module in method.modules() if isinstance(module, MomentumEncoder)]
    frozen = {parameter for module in followers for parameter in module.parameters()}
    assert {p for p in method.parameters() if not p.requires_grad} == frozen
    assert all(parameter.grad is None for parameter in frozen)
    assert not any(b.requires_grad or b.grad is not None for b in method.buffers())
    largest = {n: p.grad.abs().max() for n, p in method.named_parameters() if p.requires_grad}
    idle = [key for key, value in largest.items() if value < 1e-5]
    assert idle == IDLE.get(name, [])


@every_method
def test_small_views_come_last(name: str) -> None:
    views = tiny_method(name).views
    assert [view.small for view in views] == sorted(view.small for view in views)
    losses = set()
    for changed in range(-1, len(views)):  # at -1 none is
        method = tiny_method(name)
        batch = tiny_batch(method)
        observed = [
            -view if location == changed else view for location, view in enumerate(batch.views)
        ]
        losses.add(forward(method, batch._replace(views=observed))["loss"].item())
    assert len(losses) == 1 + len(views)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("images"))


def job(name: str, images: Path, folder: Path) -> Job:
    """Train two epochs of two steps each, logging every two steps."""
    recipe = replace(
        RECIPES[f"{name}/smoke"],
        config=tiny_config(name),
        views=ViewRecipe(size_px=16, small_size_px=8),
        batch_size=8,
    )
    return tiny_job(tiny_method(name), recipe, find_images(images), folder, read_every_steps=2)


@every_method
def test_a_stopped_and_resumed_run_equals_one_that_never_stopped(
    name: str, images: Path, tmp_path: Path
) -> None:
    whole = job(name, images, tmp_path / "whole")
    assert train(whole) == 4
    for num_steps, completed in ((2, 2), (1, 3)):  # at the end of an epoch, and within a window
        with stop_after(num_steps):
            assert train(job(name, images, tmp_path / "parts")) == completed
    last = job(name, images, tmp_path / "parts")
    assert train(last) == 4
    assert same_state(whole.method, last.method)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


@every_method
def test_one_epoch_moves_every_tensor_that_trains_of_what_is_exported(
    name: str, images: Path, tmp_path: Path
) -> None:
    for num_steps in (1, 2):
        epoch = replace(job(name, images, tmp_path / str(num_steps)), num_steps=num_steps)
        previous = {key: p.detach().clone() for key, p in epoch.method.backbone.named_parameters()}
        train(epoch)
        after = epoch.method.backbone.named_parameters()
        assert [key for key, p in after if torch.equal(p, previous[key])] == []


@pytest.mark.parametrize(
    ("name", "late"), [("swav", "prototypes"), ("dino", "encoder.1.last_layer.weight")]
)
def test_frozen_parameters_move_from_their_step_on(
    name: str, late: str, images: Path, tmp_path: Path
) -> None:
    short = job(name, images, tmp_path)
    recipe = replace(short.recipe, schedule_unit="step", learning_rate=1.0)
    # both smoke recipes freeze for a hundredth of the run: two steps of these
    long = replace(short, command=replace(short.command, recipe=recipe), num_steps=200)
    training, still = Training(long), []
    learning = {k: v for k, v in long.method.named_parameters() if v.requires_grad}
    for batch in long.feed.batches(0, 4):
        previous = {key: weight.detach().clone() for key, weight in learning.items()}
        training_step(long, training, long.method, batch)
        # SwAV makes its prototypes unit length again at each step, which may round
        still.append({k for k, v in learning.items() if (v - previous[k]).abs().max() < 1e-6})
    assert still == [{late}, {late}, set(), set()]


def smoke_run(name: str, images: Path, out: Path) -> int:
    """Exit status of `python -m pretrain NAME/smoke`, at most one step."""
    numbers = {"supervised": ["--num-classes", "2"], "instdisc": ["--num-images", "20"]}
    steps = [] if name == "random" else ["--steps", "1"]
    return main(
        [f"{name}/smoke", "--data", str(images), "--out", str(out), *numbers.get(name, []), *steps]
    )


@pytest.mark.slow
@every_method
def test_what_a_smoke_run_exports_can_be_evaluated(name: str, images: Path, tmp_path: Path) -> None:
    assert smoke_run(name, images, tmp_path) == 0
    several = name in ("loocpp", "mocopp")
    widths = {"backbone.pt": 1024, "backbone-head0.pt": 512} if several else {"backbone.pt": 512}
    remaining = {"checkpoint.pt"} | ({"encoder.pt"} if tiny_method(name).projectors else set())
    assert {file.name for file in tmp_path.glob("*.pt")} == widths.keys() | remaining
    for file, width in widths.items():
        backbone = load_backbone(tmp_path / file)
        assert backbone.arch == ("resnet18" if width == 512 else "resnet18-heads2")
        features = backbone.network()(torch.randn(2, 3, 32, 32))
        assert features.shape == (2, width)
        assert features.isfinite().all()


def test_random_exports_its_initialization(images: Path, tmp_path: Path) -> None:
    assert smoke_run("random", images, tmp_path) == 0
    torch.manual_seed(0)
    expected = build_resnet("resnet18", "imagenet")[0].state_dict()
    result = load_backbone(tmp_path / "backbone.pt").state_dict
    assert result.keys() == expected.keys()
    assert all(torch.equal(result[name], expected[name]) for name in result)
