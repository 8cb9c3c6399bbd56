"""Commands, jobs and files: what a run refuses, records, exports and resumes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import pretrain.start
from pretrain.__main__ import main
from pretrain.checkpoint import CheckpointError
from pretrain.command import Command, parse
from pretrain.data.images import DataError, find_images
from pretrain.loop import Job, train
from pretrain.parts.heads import BranchedResNet
from pretrain.parts.resnet import build_resnet
from pretrain.precision import tf32_convolutions
from pretrain.run import (
    backbone_origin,
    cautions,
    describe,
    exported_networks,
    prepare,
    write_backbone,
)
from pretrain.running.processes import Process
from pretrain.running.stop import StopRequest
from tests.rounding import assert_equal_up_to_rounding
from tests.stop_after import StopAfter

CPU = Process(device=torch.device("cpu"))


def command(name: str, images: Path, *options: str) -> Command[Any]:
    """A smoke run beside the images."""
    folder = images.parent / "run"
    folder.mkdir(exist_ok=True)
    required = ["--data", str(images), "--out", str(folder), "--batch-size", "4"]
    return parse(f"{name}/smoke", [*required, *options])


def job(name: str, images: Path, *options: str) -> Job:
    return prepare(f"{name}/smoke", command(name, images, *options), CPU)


def style_bank(images: Path, *styles: str) -> Path:
    """Gray copies of all images in each style."""
    bank = images.parent / "paintings"
    for style in styles:
        for file in find_images(images).files:
            copy = bank / style / file.relative_to(images)
            copy.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (24, 20)).save(copy)
    return bank


def test_a_wrong_number_of_classes_is_refused_with_the_right_one(image_folder: Path) -> None:
    message = r"holds 2 classes and the recipe expects 10; pass --num-classes 2"
    with pytest.raises(DataError, match=message):
        job("supervised", image_folder)
    assert job("supervised", image_folder, "--num-classes", "2").feed.uses_labels


def test_a_wrong_number_of_images_is_refused_with_the_right_one(image_folder: Path) -> None:
    message = r"holds 20 images and the recipe expects 50000; pass --num-images 20"
    with pytest.raises(DataError, match=message):
        job("instdisc", image_folder)
    assert job("instdisc", image_folder, "--num-images", "20").feed.uses_indices
    assert not job("moco", image_folder).feed.uses_indices


def test_a_flat_folder_is_refused_where_labels_are_needed_and_only_there(
    image_folder: Path,
) -> None:
    with pytest.raises(DataError, match="they have no label"):
        job("supervised", image_folder / "warm", "--num-classes", "1")
    assert not job("moco", image_folder / "warm").feed.uses_labels


@pytest.mark.parametrize("options", [("--epochs", "5"), ("--epochs", "10"), ("--epochs", "0")])
def test_a_warm_up_that_fills_the_run_is_refused(
    image_folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    out = ["--out", str(image_folder.parent / "run")]
    request = ["--data", str(image_folder), *out, "--warmup-epochs", "10", *options]
    assert main(["simaffinity/smoke", *request]) == 2
    assert "--warmup-epochs 10 leaves nothing of --epochs" in capsys.readouterr().err


def test_no_epochs_are_a_run_of_no_steps_that_exports_the_initialization(
    image_folder: Path,
) -> None:
    assert (
        main(["random/smoke", "--data", str(image_folder), "--out", str(image_folder.parent)]) == 0
    )
    found = torch.load(image_folder.parent / "backbone.pt", weights_only=True)
    torch.manual_seed(0)
    expected, _ = build_resnet("resnet18", "imagenet")
    assert found["made_by"]["steps"] == 0
    for name, value in expected.state_dict().items():
        assert torch.equal(
            found["state_dict"][name], value.float() if value.is_floating_point() else value
        )


def test_a_run_whose_images_were_written_meanwhile_exports_nothing_until_that_is_accepted(
    image_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    image = min(file for file in image_folder.rglob("*") if file.is_file())
    out = image_folder.parent / "run"

    def meanwhile(job: Job, *others: Any) -> int:
        image.write_bytes(image.read_bytes())  # another one of the same size, or put back
        return 0

    words = ["random/smoke", "--data", str(image_folder), "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(pretrain.start, "train", meanwhile)
        assert main(words) == 1
    told = capsys.readouterr().err
    assert f"images or folders in {image_folder} were changed while" in told
    assert f"({image.relative_to(image_folder)})" in told
    assert not (out / "backbone.pt").exists()
    assert main(words) == 0
    assert (out / "backbone.pt").exists()


def test_the_record_tells_how_texture_was_changed(image_folder: Path) -> None:
    bank = str(style_bank(image_folder, "munch", "seurat"))
    cases: dict[str, tuple[str, ...]] = {
        "": (),
        "randconv_luma": ("--texture-probability", "0.5"),
        "style bank paintings of munch, seurat": (
            *("--texture-probability", "0.5"),
            *("--style-bank", bank),
        ),
    }
    for expected, options in cases.items():
        asked = command("moco", image_folder, *options)
        ready = prepare("moco/smoke", asked, CPU)
        made_by = torch.load(write_backbone(ready, asked, 0), weights_only=True)["made_by"]
        assert made_by["texture"] == ready.settings["texture"] == expected


def test_a_run_does_not_go_on_with_another_number_of_styles(image_folder: Path) -> None:
    options = ["--texture-probability", "0.5", "--steps", "1", "--workers", "0"]
    options += ["--style-bank", str(style_bank(image_folder, "munch")), "--bn-splits", "2"]
    assert train(job("moco", image_folder, *options), StopRequest()) == 1
    style_bank(image_folder, "seurat")
    with pytest.raises(CheckpointError, match="texture"):
        train(job("moco", image_folder, *options), StopRequest())


def test_of_several_heads_all_are_exported_and_the_first_alone() -> None:
    torch.manual_seed(0)
    network, _ = build_resnet("resnet18", "cifar")
    branched = BranchedResNet(network, 3).eval()
    files = exported_networks("resnet18", branched)
    assert {name: arch for name, (arch, _) in files.items()} == {
        "backbone": "resnet18-heads3",
        "backbone-head0": "resnet18",
    }
    images = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        together, alone = (module(images) for _, module in files.values())
    assert_equal_up_to_rounding(together[:, :512], alone)
    assert together.shape == (2, 3 * 512)


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16"])
def test_console_and_backbone_name_the_arithmetic_that_was_used(
    image_folder: Path, precision: str
) -> None:
    """Not what was asked for: auto is float32 here."""
    ready = job("moco", image_folder, "--precision", precision)
    expected = "bfloat16" if precision == "bfloat16" else "float32"
    assert describe(ready).endswith(f"1 x cpu, {expected}")
    made_by = backbone_origin(ready, command("moco", image_folder, "--precision", precision), 0)
    assert (made_by["precision"], made_by["tf32_convolutions"]) == (expected, False)


def test_float32_on_a_recent_gpu_says_that_convolutions_run_in_tf32(
    image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert tf32_convolutions("float32", "cuda")
    assert not tf32_convolutions("bfloat16", "cuda")
    assert not tf32_convolutions("float32", "cpu")
    on_gpu = Process(device=torch.device("cuda"))
    ready = replace(job("moco", image_folder, "--precision", "float32"), process=on_gpu)
    assert describe(ready).endswith("1 x cuda, float32 with convolutions in TF32")


@pytest.mark.parametrize(("choice", "in_workers"), [("auto", True), ("device", False)])
def test_on_a_cpu_workers_color_the_views_unless_told_otherwise(
    image_folder: Path, choice: str, in_workers: bool
) -> None:
    asked = job("moco", image_folder, "--colors-in", choice, "--memory-gb", "0")
    assert asked.feed.colors_in_workers is in_workers


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (("moco/smoke", "--bn-splits", "3"), "do not split into --bn-splits 3"),
        (("moco/smoke", "--queue-size", "8"), "does not fit into --queue-size 8"),
        (("moco/smoke", "--queue-size", "0"), "a queue of 0 keys holds nothing"),
        (("swav/smoke", "--num-assigned-views", "3"), "num_assigned_views is 3"),
        (("wmse/smoke", "--whitening-size", "6"), "sub-batches of --whitening-size 6"),
        (("moco/smoke", "--shared", "rotation"), "--rotation-probability 0.5"),
        (("looc/smoke", "--designated", "texture"), "never changes"),
        (("moco/smoke", "--key-only", "color", "--symmetric"), "choose one of the two"),
        (("lorac/smoke", "--num-keys", "7"), "1 to num_large_views keys"),
        (("moco/smoke", "--arch", "resnet19"), "unknown architecture"),
        (("dino/smoke", "--precision", "bfloat16"), "16 px: layer4 gets maps of 1x1"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_the_run(
    image_folder: Path, capsys: pytest.CaptureFixture[str], request_: tuple[str, ...], told: str
) -> None:
    places = ["--data", str(image_folder), "--out", str(image_folder.parent / "run")]
    assert main([request_[0], *places, *request_[1:]]) == 2
    assert told in capsys.readouterr().err


def test_a_reader_is_told_what_makes_a_run_less_than_it_seems(image_folder: Path) -> None:
    alone = cautions(job("moco", image_folder, "--bn-splits", "1"))
    assert any("--bn-splits 8" in line for line in alone)
    assert not cautions(job("moco", image_folder))
    (image_folder / "again").symlink_to("warm")
    assert any(
        "left out" in line and "again" in line for line in cautions(job("moco", image_folder))
    )
    singular = cautions(job("simtrace", image_folder, "--embedding-dim", "64"))
    assert any("8 rows whiten 64 features" in line for line in singular)


def groups_of(name: str, images: Path, num_processes: int, *options: str) -> object:
    process = replace(CPU, num_processes=num_processes)
    ready = prepare(f"{name}/smoke", command(name, images, *options), process)
    return ready.settings["batch_norm_groups"]


@pytest.mark.parametrize(
    ("name", "options", "groups"),
    [
        ("moco", ("--bn-splits", "1"), 2),
        ("moco", ("--bn-splits", "2"), 4),
        ("supervised", ("--num-classes", "2"), 2),
        ("instdisc", ("--num-images", "20"), 2),
        ("simclr", (), 1),
        ("simclr", ("--no-sync-bn",), 2),
        ("swav", (), 1),
        ("dino", (), 1),
    ],
)
def test_batch_norm_groups_are_those_of_two_processes(
    image_folder: Path, name: str, options: tuple[str, ...], groups: int
) -> None:
    assert groups_of(name, image_folder, 2, *options) == groups


def test_a_run_of_two_processes_does_not_go_on_with_one_but_does_with_as_many_splits(
    image_folder: Path,
) -> None:
    begun = job("moco", image_folder, "--bn-splits", "1", "--steps", "2")
    both = prepare(
        "moco/smoke",
        command("moco", image_folder, "--bn-splits", "1", "--steps", "2"),
        replace(CPU, num_processes=2),
    )
    train(replace(begun, settings=both.settings), StopAfter(1))
    with pytest.raises(CheckpointError, match=r"batch_norm_groups 2 -> 1.*--bn-splits were 2"):
        train(begun, StopRequest())
    split = job("moco", image_folder, "--bn-splits", "2", "--steps", "2")
    assert train(split, StopRequest()) == 2


def test_a_local_prior_binds_a_run_to_its_images_per_process(image_folder: Path) -> None:
    for scope, images in (("local", 2), ("global", 0)):
        asked = command("lorac", image_folder, "--prior", "batch", "--batch-scope", scope)
        ready = prepare("lorac/smoke", asked, replace(CPU, num_processes=2))
        assert ready.settings["local_prior_images"] == images


def test_where_views_were_made_is_recorded_and_binds_a_resumed_run(image_folder: Path) -> None:
    made = {
        job("moco", image_folder, *options).settings["views_made"]
        for options in ((), ("--memory-gb", "0"), ("--memory-gb", "0", "--colors-in", "device"))
    }
    assert made == {"memory", "workers", "device"}
