"""Commands, jobs and files: refused options, records, exports, snapshots and resuming."""

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

import pretrain.loop
import pretrain.start
from pretrain.__main__ import main
from pretrain.command import Command, parse
from pretrain.data.images import DataError
from pretrain.data.listing import find_images
from pretrain.export import backbone_origin, write_backbone
from pretrain.job import (
    Job,
    cautions,
    describe,
    norm_cautions,
    prepare,
)
from pretrain.loop import train
from pretrain.method import BatchNeeds, Method
from pretrain.parts.view import View
from pretrain.recipes.recipe import SUPERVISED_VIEWS
from pretrain.running.processes import Process
from pretrain.settings import SettingsError, check_view_options

CPU = Process(device=torch.device("cpu"))
LARGE, SMALL = View(), View(small=True)


def command(name: str, images: Path, *options: str) -> Command[Any]:
    """A smoke run next to the images."""
    folder = images.parent / "run"
    folder.mkdir(exist_ok=True)
    required = ["--data", str(images), "--out", str(folder), "--batch-size", "4"]
    return parse(f"{name}/smoke", [*required, *options])


def job(name: str, images: Path, *options: str, process: Process = CPU) -> Job:
    return prepare(f"{name}/smoke", command(name, images, *options), process, find_images(images))


def test_labels_and_indices_come_where_a_method_uses_them(image_folder: Path) -> None:
    assert job("supervised", image_folder, "--num-classes", "2").feed.uses_labels
    assert job("instdisc", image_folder, "--num-images", "20").feed.uses_indices
    flat = image_folder / "warm"
    plain = job("moco", flat).feed
    assert (plain.uses_labels, plain.uses_indices) == (False, False)
    with pytest.raises(DataError, match="have no label"):
        job("supervised", flat, "--num-classes", "1")


def test_folder_named_wandb_is_not_the_package(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    (tmp_path / "packages" / "wandb").mkdir(parents=True)
    with pytest.raises(SettingsError, match="pip install wandb"):
        job("random", image_folder, "--wandb", "ssl")


def test_the_record_names_data_that_are_the_working_folder(
    image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(image_folder)
    ready = job("random", image_folder)
    ready = replace(ready, command=replace(ready.command, data=Path()))
    assert str(backbone_origin(ready, 0)["data"]).startswith("images (20 images, fingerprint ")


def test_skipped_images_are_counted_in_the_record(image_folder: Path) -> None:
    (image_folder / "warm" / "0.png").write_bytes(b"not a picture")
    images = find_images(image_folder, tolerated=3)
    tolerant = command("random", image_folder, "--tolerated-images", "3")
    ready = prepare("random/smoke", tolerant, CPU, images)
    assert "1 unreadable images are left out: warm/0.png" in cautions(ready)
    assert "(19 images, 1 unreadable, fingerprint " in str(backbone_origin(ready, 0)["data"])


def test_the_record_tells_how_texture_was_changed(image_folder: Path, style_bank: Path) -> None:
    cases: dict[str, tuple[str, ...]] = {
        "": (),
        "randconv_luma": ("--texture-probability", "0.5"),
        "style bank paintings of munch, seurat": (
            *("--texture-probability", "0.5"),
            *("--style-bank", str(style_bank)),
        ),
    }
    for expected, options in cases.items():
        ready = job("moco", image_folder, *options)
        made_by = torch.load(write_backbone(ready, 0), weights_only=True)["made_by"]
        assert made_by["texture"] == ready.settings["texture"] == expected


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16"])
def test_console_and_backbone_name_the_arithmetic_that_was_used(
    image_folder: Path, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorded precision is the actual one: auto is float32 here."""
    ready = job("moco", image_folder, "--precision", precision)
    expected = "bfloat16" if precision == "bfloat16" else "float32"
    assert describe(ready).endswith(f"1 x cpu, {expected}")
    made_by = backbone_origin(ready, 0)
    assert (made_by["precision"], made_by["tf32_convolutions"]) == (expected, False)
    if precision == "float32":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
        ready = replace(ready, process=Process(device=torch.device("cuda")))
        assert describe(ready).endswith("1 x cuda, float32 with convolutions in TF32")


@pytest.mark.parametrize(
    ("request_", "output"),
    [
        (("moco/smoke", "--bn-splits", "3"), "do not split into --bn-splits 3"),
        (("moco/smoke", "--bn-splits", "16"), "fewer than two images to each of 16 groups"),
        (("moco/smoke", "--queue-size", "8"), "does not fit into --queue-size 8"),
        (("moco/smoke", "--queue-size", "0"), "--queue-size 0: expected at least 1"),
        (("wmse/smoke", "--whitening-size", "6"), "sub-batches of --whitening-size 6"),
        (("moco/smoke", "--shared", "rotation"), "--rotation-probability 0.5"),
        (("looc/smoke", "--designated", "texture"), "never changes"),
        (("moco/smoke", "--key-only", "color", "--symmetric"), "choose one of the two"),
        (("lorac/smoke", "--num-keys", "7"), "7 keys of 2 large views"),
        (("dino/smoke", "--precision", "bfloat16"), "16 px: layer4 gets maps of 1x1"),
        (("supervised/smoke",), "2 classes and the recipe expects 10: pass --num-classes 2"),
        (("instdisc/smoke",), "20 images and the recipe expects 50000: pass --num-images 20"),
        (("moco/smoke", "--small-size-px", "20"), "the method has no small views"),
        (("moco/smoke", "--epochs", "0.1"), "of 1 steps make a run of no step"),
        (
            ("simaffinity/smoke", "--schedule", "step"),
            "--schedule step needs --milestones",
        ),
        (
            ("simaffinity/smoke", "--warmup-epochs", "10", "--epochs", "10"),
            "--warmup-epochs 10 leaves nothing of --epochs",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_the_run(
    image_folder: Path, capsys: pytest.CaptureFixture[str], request_: tuple[str, ...], output: str
) -> None:
    positions = ["--data", str(image_folder), "--out", str(image_folder.parent / "run")]
    assert main([request_[0], *positions, *request_[1:]]) == 2
    assert output in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "views", "option"),
    [
        ({"small_size_px": 64}, (LARGE, LARGE), "--small-size-px"),
        ({"small_size_px": 64}, (LARGE, SMALL), ""),
        ({"small_crop_area": (0.1, 0.2)}, (LARGE,), "--small-crop-area"),
        ({"second_blur_probability": 0.1}, (LARGE, SMALL), "--second-blur-probability"),
        ({"second_blur_probability": 0.1}, (LARGE, LARGE), ""),
        ({"blur_sigma_px": (1.0, 3.0)}, (LARGE,), "--blur-sigma-px"),
        ({"blur_sigma_px": (1.0, 3.0), "blur_probability": 0.1}, (LARGE,), ""),
        ({"blur_sigma_px": (1.0, 3.0), "small_blur_probability": 0.1}, (LARGE, SMALL), ""),
        ({"hue": 0.3}, (LARGE,), "--hue"),
        ({"hue": 0.3, "jitter_probability": 0.5}, (LARGE,), ""),
        ({"gray_first": True, "jitter_probability": 0.5}, (LARGE,), "--gray-first"),
    ],
)
def test_view_options_without_effect_are_refused(
    changes: dict[str, Any], views: tuple[View, ...], option: str
) -> None:
    recipe = replace(SUPERVISED_VIEWS, **changes)
    with pytest.raises(SettingsError, match=option) if option else nullcontext():
        check_view_options(recipe, SUPERVISED_VIEWS, views)


def test_a_run_within_its_images_is_refused_before_it_adds_its_pictures_to_them(
    image_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(image_folder)
    assert main(["moco/smoke", "--data", ".", "--out", "warm/run"]) == 2
    assert "--out warm/run is in --data ." in capsys.readouterr().err
    assert not (image_folder / "warm" / "run").exists()


@pytest.mark.parametrize(
    ("name", "options", "groups"),
    [
        ("moco", ("--bn-splits", "2"), 4),
        ("simclr", (), 1),
        ("simclr", ("--no-sync-bn",), 2),
        ("swav", (), 1),
        ("dino", (), 1),
    ],
)
def test_batch_norm_groups_are_those_of_two_processes(
    image_folder: Path, name: str, options: tuple[str, ...], groups: int
) -> None:
    ready = job(name, image_folder, *options, process=replace(CPU, num_processes=2))
    assert ready.settings["batch_norm_groups"] == groups


@pytest.mark.parametrize(
    ("groups", "published", "num_processes", "advice"),
    [
        (8, 8, 1, ""),
        (1, 8, 1, "pass --bn-splits 8"),
        (2, 8, 2, "pass --bn-splits 4"),
        (8, 4, 8, "use a number of processes that divides 4"),
        (2, 0, 1, ""),
        (1, 0, 1, "pass --bn-splits 8"),
    ],
)
def test_other_groups_of_shuffled_batch_norm_are_announced(
    groups: int, published: int, num_processes: int, advice: str
) -> None:
    cautions = norm_cautions(groups, published, num_processes)
    assert bool(cautions) == bool(advice)
    assert all(advice in text for text in cautions)


def test_a_local_prior_binds_a_run_to_its_images_per_process(image_folder: Path) -> None:
    for scope, images in (("local", 2), ("global", 0)):
        options = ("--prior", "batch", "--batch-scope", scope)
        ready = job("lorac", image_folder, *options, process=replace(CPU, num_processes=2))
        assert ready.settings["local_prior_images"] == images


def test_coloring_on_the_device_is_recorded_and_memory_is_not(image_folder: Path) -> None:
    files = ("--memory-gb", "0")
    plain, second = job("moco", image_folder), job("moco", image_folder, *files)
    assert plain.settings == second.settings
    floats = job("moco", image_folder, *files, "--colors-in", "device")
    assert plain.settings | {"colors_in": "device"} == floats.settings


def command_args(images: Path, out: Path, *options: str) -> list[str]:
    small = ["--batch-size", "10", "--bn-splits", "2", "--epochs", "2"]
    return ["moco/smoke", "--data", str(images), "--out", str(out), *small, *options]


def load(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(file, weights_only=True)
    return content


def test_every_epoch_is_exported_and_the_last_is_the_backbone(
    image_folder: Path, tmp_path: Path
) -> None:
    assert main(command_args(image_folder, tmp_path / "run", "--snapshot-epochs", "1")) == 0
    files = sorted((tmp_path / "run" / "snapshots").iterdir())
    assert [file.name for file in files] == ["epoch0000.pt", "epoch0001.pt", "epoch0002.pt"]
    contents = [load(file) for file in files]
    assert [content["made_by"]["epochs"] for content in contents] == [0, 1, 2]
    end = load(tmp_path / "run" / "backbone.pt")["state_dict"]
    same = [torch.equal(c["state_dict"]["conv1.weight"], end["conv1.weight"]) for c in contents]
    assert same == [False, False, True]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wmse/smoke", "simwhitening/smoke", "simtrace/smoke"])
def test_black_images_are_not_trained_on_without_a_word(
    image_folder: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in image_folder.rglob("*.png"):
        Image.new("RGB", (24, 24)).save(file)
    out = tmp_path / "run"
    assert main([name, "--data", str(image_folder), "--out", str(out), "--batch-size", "16"]) == 1
    assert "could be whitened" in capsys.readouterr().err
    assert not (out / "backbone.pt").exists()


def test_new_run_removes_snapshots_of_an_earlier_one(image_folder: Path, tmp_path: Path) -> None:
    out, once = tmp_path / "run", command_args(image_folder, tmp_path / "run", "--steps", "2")
    assert main([*once, "--snapshot-epochs", "1"]) == 0
    snapshots = out / "snapshots"
    (snapshots / "epoch0005.pt").write_bytes(b"of a longer run")
    (snapshots / "notes.txt").write_text("of the user")
    assert main([*once, "--snapshot-epochs", "1"]) == 0  # resumed: they are its own
    assert (snapshots / "epoch0005.pt").exists()
    (out / "checkpoint.pt").unlink()
    assert main([*once, "--seed", "1"]) == 0
    assert [file.name for file in snapshots.iterdir()] == ["notes.txt"]


def test_a_run_killed_at_a_snapshot_writes_it_again(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = command_args(image_folder, tmp_path, "--snapshot-epochs", "1")
    command, images = parse(arguments[0], arguments[1:]), find_images(image_folder)
    written: list[int] = []

    def write(job: Job, steps: int) -> None:
        written.append(steps)
        if written == [0, 2]:
            raise KeyboardInterrupt

    monkeypatch.setattr(pretrain.loop, "write_snapshot", write)
    with pytest.raises(KeyboardInterrupt):
        train(prepare("moco/smoke", command, CPU, images))
    assert train(prepare("moco/smoke", command, CPU, images)) == 4
    assert written == [0, 2, 0, 2, 4]


@pytest.mark.slow
def test_a_finished_run_that_is_started_again_writes_the_encoder_file_it_lacks(
    image_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert main(command_args(image_folder, out)) == 0
    log, encoder = (out / "metrics.jsonl").read_bytes(), (out / "encoder.pt").read_bytes()
    backbone = (out / "backbone.pt").read_bytes()
    (out / "encoder.pt").unlink()
    assert main(command_args(image_folder, out)) == 0
    assert (out / "encoder.pt").read_bytes() == encoder
    assert (out / "backbone.pt").read_bytes() == backbone
    assert (out / "metrics.jsonl").read_bytes() == log


def test_a_setting_of_another_meaning_is_not_a_condition_on_a_batch() -> None:
    class Own(Method):
        """A user's method with a queue that does not contain keys."""

    assert Own.batch_needs(SimpleNamespace(queue_size=4)) == BatchNeeds()
