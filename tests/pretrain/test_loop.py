"""The training loop on tiny networks: inputs of a step, saves, stops."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pretrain.checkpoint import CheckpointError
from pretrain.data.feed import Feed, HostBatch
from pretrain.data.listing import find_images
from pretrain.data.views import ViewRecipe
from pretrain.job import Job
from pretrain.loop import train
from pretrain.method import Method
from pretrain.parts.view import View
from pretrain.recipes import RECIPES, Recipe
from pretrain.running.atomic_files import WriteError
from pretrain.running.errors import NotFiniteError
from tests.tiny_methods import stop_after, tiny_job

RECIPE = replace(RECIPES["jcl/smoke"], views=ViewRecipe(size_px=12), batch_size=4, epochs=3)


def job(
    images: Path,
    folder: Path,
    *,
    method: Method | None = None,
    recipe: Recipe[Any] = RECIPE,
    read_every_steps: int = 4,
    save_every_min: float = 0.0,
) -> Job:
    """Three epochs of five steps; metrics steps also write checkpoints."""
    return tiny_job(
        method or Recorder(),
        recipe,
        find_images(images),
        folder,
        read_every_steps=read_every_steps,
        save_every_min=save_every_min,
    )


class Brightness(nn.Linear):
    """A backbone with one weight.

    Images (n, 3, H, W) -> features (n, 1).
    """

    def __init__(self) -> None:
        super().__init__(1, 1)

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.mean(dim=(1, 2, 3))[:, None])


class Recorder(Method):
    """A method that stores the loop's calls."""

    views = (View(),) * 3

    def __init__(self, bad_step: int | None = None) -> None:
        super().__init__()
        self.backbone = Brightness()
        self.progress: list[float] = []
        self.followed: list[float] = []
        self.bad_step = bad_step

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        self.progress.append(progress)
        bad = len(self.progress) == self.bad_step
        return {
            "loss": self.backbone.get_parameter("weight").sum() * (float("nan") if bad else 1.0)
        }

    def after_step(self, progress: float | Tensor) -> None:
        self.followed.append(float(progress))


def test_infinite_loss_keeps_the_previous_checkpoint(image_folder: Path, tmp_path: Path) -> None:
    diverging = job(image_folder, tmp_path / "run", method=Recorder(bad_step=7))
    message = r"the loss is not finite at step 7 of 15"
    with pytest.raises(NotFiniteError, match=message):
        train(diverging)
    assert torch.load(diverging.checkpoint_path, weights_only=True)["step"] == 4


def test_checkpoints_follow_the_clock_and_not_the_epochs(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    def save(path: Path, state: dict[str, Any]) -> None:
        steps.append(state["step"])

    monkeypatch.setattr("pretrain.loop.checkpoint.save", save)
    train(job(image_folder, tmp_path / "often"))
    train(job(image_folder, tmp_path / "seldom", save_every_min=10.0))
    assert steps == [4, 8, 12, 15, 15]


def test_waits_for_batches_are_those_of_their_own_window(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = 0.0
    make = Feed.make

    def slow_make(feed: Feed, step: int) -> HostBatch:
        nonlocal clock_s
        clock_s += 3.0 if step < 4 else 0.0
        return make(feed, step)

    class Slow(Recorder):
        def after_step(self, progress: float | Tensor) -> None:
            nonlocal clock_s
            clock_s += 1.0

    monkeypatch.setattr(Feed, "make", slow_make)
    monkeypatch.setattr("pretrain.loop.time", SimpleNamespace(monotonic=lambda: clock_s))
    train(job(image_folder, tmp_path, method=Slow()))
    lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert [line["data_share"] for line in lines] == [75.0, 0.0, 0.0, 0.0]


class Whitening(Recorder):
    """A method that cannot whiten its batches, except at some steps."""

    def __init__(self, whitened_steps: tuple[int, ...]) -> None:
        super().__init__()
        self.whitened_steps = whitened_steps

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        loss = super().forward(views, progress)["loss"]
        failed = len(self.progress) not in self.whitened_steps
        return {
            "loss": 0 * loss if failed else loss,
            "whitening_failures": torch.tensor(float(failed)),
        }


def test_window_without_any_whitening_stops_the_run(image_folder: Path, tmp_path: Path) -> None:
    failing = job(image_folder, tmp_path / "run", method=Whitening((1, 2)))
    message = "no batch of steps 5 to 8 could be whitened.* another --out .*--ridge"
    with pytest.raises(NotFiniteError, match=message):
        train(failing)


def test_failed_whitenings_of_some_steps_are_tolerated(image_folder: Path, tmp_path: Path) -> None:
    # windows are steps 1 to 4, 5 to 8, 9 to 12, and a short one
    assert train(job(image_folder, tmp_path / "run", method=Whitening((2, 8, 9)))) == 15


def test_advice_after_divergence_can_be_followed(image_folder: Path, tmp_path: Path) -> None:
    item = job(image_folder, tmp_path / "run", method=Recorder(bad_step=7))
    low = replace(item.command, precision="bfloat16")
    with pytest.raises(NotFiniteError) as error:
        train(replace(item, command=low))
    assert "a lower --learning-rate or --precision float32 in another --out" in str(error.value)
    item = job(image_folder, tmp_path / "run", method=Recorder(bad_step=2))
    with pytest.raises(NotFiniteError) as error:
        train(item)
    assert "float32" not in str(error.value)  # which is on


def test_networks_that_are_not_finite_are_neither_saved_nor_exported(
    image_folder: Path, tmp_path: Path
) -> None:
    # the loss is finite at all steps; the features are not after the second epoch
    class Diverging(Recorder):
        def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
            metrics = super().forward(views, progress)
            if len(self.progress) == 10:
                with torch.no_grad():
                    self.backbone.get_parameter("weight").fill_(1e19)
            return {"loss": metrics["loss"].clamp(max=1.0)}

    diverging = job(image_folder, tmp_path / "run", method=Diverging())
    diverging.method.backbone.register_forward_hook(lambda _, __, result: result * 1e30)
    with pytest.raises(NotFiniteError, match="the features of an image are not finite after 12"):
        train(diverging)
    assert torch.load(diverging.checkpoint_path, weights_only=True)["step"] == 8


def test_run_resumes_after_a_full_disk(
    image_folder: Path,
    tmp_path: Path,
    fill_disk: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with stop_after(7):
        train(job(image_folder, tmp_path / "run"))
    fill_disk("checkpoint.pt")
    again = job(image_folder, tmp_path / "run")
    path = re.escape(str(again.checkpoint_path))
    message = rf"{path}: cannot be written \(No space left on device\); free some space there"
    with pytest.raises(WriteError, match=message):
        train(again)
    assert torch.load(again.checkpoint_path, weights_only=True)["step"] == 7
    monkeypatch.undo()
    assert train(job(image_folder, tmp_path / "run")) == 15


@pytest.mark.parametrize(
    ("unit", "progress", "rate"),
    [
        ("epoch", [1 / 3] * 5 + [2 / 3] * 5 + [1.0] * 5, 0.75),
        ("step", [step / 15 for step in range(1, 16)], 0.6545),
    ],
)
def test_rate_and_ramp_change_once_per_unit(
    image_folder: Path, tmp_path: Path, unit: Any, progress: list[float], rate: float
) -> None:
    recorder = Recorder()
    recipe = replace(RECIPE, schedule_unit=unit, learning_rate=1.0)
    train(
        job(image_folder, tmp_path, method=recorder, recipe=recipe, read_every_steps=7),
    )
    assert recorder.progress == pytest.approx(progress)
    assert recorder.followed == pytest.approx([step / 15 for step in range(15)])  # in either unit
    line = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert line["learning_rate"] == pytest.approx(rate, abs=1e-4)  # at step 7 of 15


def test_what_is_only_logged_is_computed_where_it_is_read(
    image_folder: Path, tmp_path: Path
) -> None:
    class Counting(Recorder):
        """Logs the step number at which its metrics are read."""

        def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
            metrics = super().forward(views, progress)
            number = torch.tensor(float(len(self.progress)))
            return metrics | ({"number": number} if self.metrics_read else {})

    train(job(image_folder, tmp_path, method=Counting()))
    lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert [(line["step"], line["number"]) for line in lines] == [(n, n) for n in (4, 8, 12, 15)]


@pytest.mark.parametrize(("other_step", "steps"), [(0, "from 0 .* to 4"), (3, "from 3 .* to 4")])
def test_processes_that_read_different_checkpoints_are_refused(
    image_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    other_step: int,
    steps: str,
) -> None:
    with stop_after(4):
        train(job(image_folder, tmp_path))
    others = [other_step, -other_step]
    monkeypatch.setattr(
        "pretrain.loop.largest_of_processes", lambda values, _: list(map(max, values, others))
    )
    with pytest.raises(CheckpointError, match=rf"{steps}\. .* that all nodes share"):
        train(job(image_folder, tmp_path))


def test_a_checkpoint_with_other_tensors_is_refused(image_folder: Path, tmp_path: Path) -> None:
    with stop_after(4):
        train(job(image_folder, tmp_path))
    path = job(image_folder, tmp_path).checkpoint_path
    state = torch.load(path, weights_only=False)
    state["method"] = {f"old.{name}": value for name, value in state["method"].items()}
    torch.save(state, path)
    with pytest.raises(CheckpointError, match=r"has other tensors.*Pass another --out"):
        train(job(image_folder, tmp_path))
