"""The loop on a tiny detector: stops, resume and micro-batches."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from pretrain.running import stop
from pretrain.running.atomic_files import save_stage
from pretrain.running.errors import NotFiniteError
from pretrain.running.processes import Process
from tests.transfer.detection.tiny_training import TinyDetector, tiny_recipe, tiny_scenes
from tests.two_processes import two_processes
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.samples import training_sample
from transfer.encoders.encoder import Encoder
from transfer.finetuning import loop, stream
from transfer.finetuning.state import Training, summary
from transfer.frozen.network import WORKSPACE_VARIABLE, frozen_maps_network, frozen_network

ALONE = Process(device=torch.device("cpu"))
FOLDER = "TINY_TRAININGS"
"""Variable of the environment: where two processes meet."""
PLAIN = tiny_recipe(group_by_aspect=False, precise_norm_batches=0)
"""A recipe whose processes and micro-batches see the images of one."""


def smooth_detector() -> TinyDetector:
    """A float64 network without norm layers and dropout.

    How images are distributed changes only roundings.
    """
    return TinyDetector(norm=nn.Identity, drop=0, dtype=torch.float64)


def before_call(network: nn.Module, number: int, action: Callable[[], object]) -> list[int]:
    """Act in front of the call with this number, counted from 1.

    Return a growing list of calls.
    """
    calls: list[int] = []

    def note(*_: object) -> None:
        calls.append(len(calls) + 1)
        if calls[-1] == number:
            action()

    network.register_forward_pre_hook(note)
    return calls


def spoil(detector: TinyDetector, bias: float = torch.nan) -> None:
    detector.get_parameter("rpn.bias").data.fill_(bias)


def trained(
    folder: Path,
    detector: TinyDetector | None = None,
    recipe: DetectorRecipe | None = None,
    *,
    process: Process = ALONE,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Summary and final state of a training in the folder."""
    detector = detector or TinyDetector()
    recipe = recipe or tiny_recipe()
    scenes = tiny_scenes(folder / f"images-{process.rank}")
    is_landscape = scenes.wide if recipe.group_by_aspect else None
    samples = stream.single_samples(scenes, training_sample, recipe, 1, is_landscape)
    optimizer = detector.optimizer(recipe)
    item = Training(network=detector, optimizer=optimizer, schedule=recipe, folder=folder)
    loop.train(item, samples, seed=1, process=process)
    return summary(item), detector.state_dict()


class Killed(BaseException):
    """The end of the process, as far as the loop can tell."""


def assert_same(
    ours: tuple[dict[str, Any], dict[str, Tensor]],
    theirs: tuple[dict[str, Any], dict[str, Tensor]],
) -> None:
    """Bit for bit."""
    for name in ("losses", "curve"):
        assert ours[0][name] == theirs[0][name]
    for name, tensor in ours[1].items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(tensor, theirs[1][name]), name


@pytest.mark.parametrize("num_workers", [0, 2])
def test_stopped_and_resumed_equals_undisturbed(
    tmp_path: Path, num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "num_workers", lambda images: num_workers)
    undisturbed = trained(tmp_path / "a")
    detector = TinyDetector()
    before_call(detector, 4, lambda: stop._received_signals.append(15))
    with pytest.raises(stop.Stopped):
        trained(tmp_path / "b", detector)
    stop._received_signals.clear()
    detector = TinyDetector()
    calls = before_call(detector, 0, list)
    assert_same(trained(tmp_path / "b", detector), undisturbed)
    assert len(calls) == 9 - 4 + tiny_recipe().precise_norm_batches


def test_weights_that_the_last_step_ruins_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector, step = TinyDetector(), loop.step

    def ruin(stream: Any, training: Training, *rest: Any) -> None:
        step(stream, training, *rest)
        if training.iteration == training.schedule.iterations - 1:
            with torch.no_grad():
                next(detector.parameters()).fill_(torch.inf)

    monkeypatch.setattr(loop, "step", ruin)
    with pytest.raises(NotFiniteError, match="iteration 9 of 9: weights are not finite"):
        trained(tmp_path, detector)
    monkeypatch.setattr(loop, "step", step)
    assert_same(trained(tmp_path), trained(tmp_path / "undisturbed"))


def test_killed_and_resumed_equals_undisturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tiny_recipe(accumulated=2)
    undisturbed = trained(tmp_path / "a", recipe=recipe)
    detector = TinyDetector()
    before_call(detector, 8, Mock(side_effect=Killed))  # in the second pass of the fourth iteration
    with monkeypatch.context() as patched:
        patched.setattr(loop, "SAVE_EVERY_S", 0)
        with pytest.raises(Killed):
            trained(tmp_path / "b", detector, recipe)
    assert_same(trained(tmp_path / "b", recipe=recipe), undisturbed)


@pytest.mark.parametrize(
    ("content", "output"), [(b"torn", "is damaged"), (None, "is of an earlier version")]
)
def test_state_that_cannot_be_used_is_named_and_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, output: str
) -> None:
    first = trained(tmp_path)
    file = tmp_path / "training.stage"
    if content is None:
        save_stage(file, {"network/conv.weight": torch.ones(1)})
    else:
        file.write_bytes(content)
    capsys.readouterr()
    assert_same(trained(tmp_path), first)
    assert f"{output}: the training starts again" in capsys.readouterr().err


def test_passes_that_share_a_batch_make_the_step_of_one(tmp_path: Path) -> None:
    whole, shared = (
        trained(tmp_path / str(passes), smooth_detector(), replace(PLAIN, accumulated=passes))
        for passes in (1, 2)
    )
    for name, tensor in whole[1].items():
        torch.testing.assert_close(shared[1][name], tensor)
    assert shared[0]["losses"] == pytest.approx(whole[0]["losses"])


@pytest.mark.parametrize("bad", [3, 8, 9])
def test_the_first_loss_that_is_not_finite_ends_it(tmp_path: Path, bad: int) -> None:
    detector = TinyDetector()
    before_call(detector, bad, lambda: spoil(detector))
    with pytest.raises(NotFiniteError, match=rf"iteration {bad} of 9.*loss_rpn_cls nan"):
        trained(tmp_path, detector)
    assert not (tmp_path / "training.stage").exists()


@pytest.mark.parametrize("bias", [torch.inf, 0.0])
def test_what_an_engine_says_ends_it_at_the_iteration_that_was_bad(
    tmp_path: Path, bias: float
) -> None:
    """An unread loss that is not finite comes first.

    After good losses the engine is quoted.
    """
    detector = TinyDetector()
    before_call(detector, 3, lambda: spoil(detector, bias))
    before_call(detector, 4, Mock(side_effect=FloatingPointError("boxes are not finite")))
    output = "iteration 3 of 9.*loss_rpn_cls (nan|inf)" if bias else "iteration 4 of 9.*boxes are"
    with pytest.raises(NotFiniteError, match=output):
        trained(tmp_path, detector)


def test_what_an_engine_says_in_the_pass_for_norms_ends_it(tmp_path: Path) -> None:
    detector = TinyDetector()
    before_call(detector, 10, Mock(side_effect=FloatingPointError("boxes are not finite")))
    with pytest.raises(NotFiniteError, match=r"iteration 9 of 9.*boxes are not finite"):
        trained(tmp_path, detector)


def test_low_precision_trains_other_weights_of_full_precision(tmp_path: Path) -> None:
    full, low = (
        trained(tmp_path / precision, recipe=tiny_recipe(precision=precision))[1]
        for precision in ("float32", "bfloat16")
    )
    assert low["conv.weight"].dtype == torch.float32
    assert not torch.equal(low["conv.weight"], full["conv.weight"])
    # nine steps at a rate of 0.05 with gradients below 1, of which bfloat16 keeps two digits
    torch.testing.assert_close(low["conv.weight"], full["conv.weight"], atol=0.05, rtol=0.1)


def test_cudnn_benchmark_is_on_only_within_the_block() -> None:
    previous = torch.backends.cudnn.benchmark
    for device, one_size in (("cpu", True), ("cuda", False), ("cuda", True)):
        with loop.measured_convolutions(torch.device(device), one_size=one_size):
            assert torch.backends.cudnn.benchmark == (previous or (device == "cuda" and one_size))
        assert torch.backends.cudnn.benchmark == previous


def test_what_the_user_says_of_the_memory_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = loop.ALLOCATOR_VARIABLES
    monkeypatch.delenv(first, raising=False)
    monkeypatch.setenv(second, "max_split_size_mb:64")
    loop.use_expandable_segments()
    assert first not in os.environ


@pytest.mark.parametrize(("given", "expected"), [(None, "8192"), ("512", "512")])
def test_workspaces_are_limited_unless_the_user_says_so(
    given: str | None, expected: str, small_backbone: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cudnn may read the variable once, thus frozen networks set it before trainings, too."""

    def train() -> None:
        with loop.measured_convolutions(torch.device("cuda"), one_size=True):
            pass

    def extract_maps() -> None:
        frozen_maps_network(small_backbone, 64)

    for begin in (train, extract_maps, lambda: frozen_network(small_backbone)):
        monkeypatch.setenv(WORKSPACE_VARIABLE, given or "")
        if given is None:
            monkeypatch.delenv(WORKSPACE_VARIABLE)
        begin()
        assert os.environ[WORKSPACE_VARIABLE] == expected


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    losses, weights = trained(tmp_path / "alone", smooth_detector(), PLAIN)
    for two_process in two_processes("tests.transfer.finetuning.test_loop", tmp_path):
        assert two_process["losses"] == pytest.approx(losses["losses"])
        torch.testing.assert_close(two_process["weights"], weights)
        assert two_process["calls"] == 2 * (23 - loop.READ_EVERY)
        torch.testing.assert_close(
            two_process["resumed"], two_process["undisturbed"], rtol=0, atol=0
        )
        assert "iteration 5 of 9: a loss is not finite" in two_process["error"]
        assert "loss_rpn_cls nan" in two_process["error"]


def measure_losses(rank: int, num_processes: int) -> dict[str, Any]:
    """Trainings in several processes, each with its share; of one, the whole."""
    process = Process(rank=rank, num_processes=num_processes, device=torch.device("cpu"))
    folder = Path(os.environ[FOLDER])
    summary, weights = trained(folder / "plain", smooth_detector(), PLAIN, process=process)
    stopped = TinyDetector(norm=nn.Identity, drop=0)
    recipe = replace(PLAIN, iterations=23, accumulated=2)
    undisturbed = trained(folder / "undisturbed", stopped, recipe, process=process)[1]
    stopped = TinyDetector(norm=nn.Identity, drop=0)
    if rank:
        before_call(stopped, 9, lambda: stop._received_signals.append(15))
    with pytest.raises(stop.Stopped):
        trained(folder / "stopped", stopped, recipe, process=process)
    stop._received_signals.clear()
    stopped = TinyDetector(norm=nn.Identity, drop=0)
    calls = before_call(stopped, 0, list)
    resumed = trained(folder / "stopped", stopped, recipe, process=process)[1]
    bad = TinyDetector()
    if rank:
        before_call(bad, 5, lambda: spoil(bad))
    with pytest.raises(NotFiniteError) as error:
        trained(folder / "bad", bad, process=process)
    return {
        "losses": summary["losses"],
        "weights": weights,
        "undisturbed": undisturbed,
        "resumed": resumed,
        "calls": len(calls),
        "error": str(error.value),
    }
