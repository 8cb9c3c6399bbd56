"""Images that cannot be decoded during a run."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from pretrain.data.bad_images import FILE_NAME, BadImages
from pretrain.data.feed import Batch, Feed
from pretrain.data.images import BatchPlan, DataError, DecodeError
from pretrain.data.listing import find_images
from pretrain.data.views import ViewRecipe
from pretrain.parts.view import View

BAD = ("cold/3.png", "warm/7.png")
every_source = pytest.mark.parametrize(
    "options",
    [{}, {"memory_gb": 0.0}, {"memory_gb": 0.0, "workers": 2}],
    ids=["memory", "files", "workers"],
)


@pytest.fixture
def truncated_folder(image_folder: Path) -> Path:
    """Twenty images; two have a header but no complete pixels."""
    for name in BAD:
        file = image_folder / name
        file.write_bytes(file.read_bytes()[:300])
    return image_folder


def feed(folder: Path, tolerated: int, **changes: Any) -> Feed:
    """Two 8 px views in batches of four.

    Bad images are recorded in the folder next to the images.
    """
    images = find_images(folder, tolerated=1)
    path = folder.parent / "out" / FILE_NAME
    settings: dict[str, Any] = {
        "images": images,
        "plan": BatchPlan(num_images=len(images), batch_size=4, seed=0),
        "recipe": ViewRecipe(size_px=8),
        "views": (View(), View()),
        "device": torch.device("cpu"),
        "workers": 0,
        "memory_gb": 1.0,
        "uses_labels": True,
        "uses_indices": True,
        "bad_images": BadImages(images=images, path=path, seed=0, tolerated=tolerated),
    }
    return Feed(**settings | changes)


def epochs(source: Feed, first: int = 0) -> list[Batch]:
    """Return the batches of two epochs, starting at a step."""
    return list(source.batches(first, 10))


@every_source
def test_bad_images_are_replaced_with_their_labels(
    truncated_folder: Path, options: dict[str, Any]
) -> None:
    source = feed(truncated_folder, 2, **options)
    bad = {i for i in range(20) if source.images.name(i) in BAD}
    planned, used = [], []
    for step, batch in enumerate(epochs(source)):
        labels, indices = batch.extras
        assert labels.tolist() == source.images.labels[indices.numpy()].tolist()
        planned += source.plan.batch(step)[1].tolist()
        used += indices.tolist()
    assert not bad & set(used)
    assert sum(a != b for a, b in zip(planned, used, strict=True)) == 2 * len(bad)


@every_source
def test_resumed_run_uses_the_same_substitutes(
    truncated_folder: Path, options: dict[str, Any]
) -> None:
    whole = epochs(feed(truncated_folder, 2, **options))
    resumed = feed(truncated_folder, 2, **options)
    resumed.bad_images.check_recorded()
    for expected, batch in zip(whole[6:], epochs(resumed, 6), strict=True):
        assert torch.equal(torch.stack(expected.views), torch.stack(batch.views))
        assert torch.equal(expected.extras[1], batch.extras[1])


@every_source
def test_substitutes_do_not_depend_on_what_is_recorded(
    truncated_folder: Path, options: dict[str, Any]
) -> None:
    first = epochs(feed(truncated_folder, 2, **options))
    (truncated_folder.parent / "out" / FILE_NAME).unlink()
    for expected, batch in zip(
        first[4:], epochs(feed(truncated_folder, 2, **options), 4), strict=True
    ):
        assert torch.equal(expected.extras[1], batch.extras[1])


@every_source
def test_too_many_bad_images_are_refused_with_usable_advice(
    truncated_folder: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(DecodeError, match=r"1 tolerated:(?s:.*)--tolerated-images 2") as error:
        epochs(feed(truncated_folder, 1, **options))
    assert all(name in str(error.value) for name in BAD)
    restarted = feed(truncated_folder, 1, **options)
    with pytest.raises(DataError, match="2 of 20 images are bad"):
        restarted.bad_images.check_recorded()
    accepted = feed(truncated_folder, 2, **options)
    accepted.bad_images.check_recorded()
    assert sorted(accepted.bad_images.recorded()) == sorted(BAD)
    assert len(epochs(accepted)) == 10


def test_repaired_images_are_used_again(truncated_folder: Path) -> None:
    epochs(feed(truncated_folder, 2))
    good = (truncated_folder / "cold" / "0.png").read_bytes()
    for name in BAD:
        (truncated_folder / name).write_bytes(good)
    repaired = feed(truncated_folder, 0)
    repaired.bad_images.check_recorded()
    assert sorted(i for batch in epochs(repaired) for i in batch.extras[1].tolist()) == sorted(
        [*range(20)] * 2
    )


def test_unopened_and_undecoded_images_share_one_limit(truncated_folder: Path) -> None:
    (truncated_folder / "cold" / "9.png").write_bytes(b"not an image")
    with pytest.raises(DecodeError, match="3 of 20 images are bad, and 2 tolerated"):
        epochs(feed(truncated_folder, 2))


def test_image_with_too_many_pixels_names_the_limit(
    image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20_000)
    Image.new("L", (250, 200)).save(image_folder / "cold" / "scan.png")
    limit = "cold/scan.png: more than 0 megapixels; .* SSL_BENCHMARK_MAX_MEGAPIXELS"
    with pytest.raises(DataError, match=limit):
        find_images(image_folder)


def test_environment_variable_raises_the_limit(image_folder: Path) -> None:
    file = image_folder / "scan.png"
    Image.new("1", (16_000, 12_000)).save(file)
    code = f"from pretrain.pixels.decoding import image_size; print(image_size({str(file)!r}))"
    sizes = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"SSL_BENCHMARK_MAX_MEGAPIXELS": limit},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for limit in ("", "200")
    ]
    assert sizes == ["(0, 0)", "(12000, 16000)"]


def test_incomplete_line_of_a_killed_process_is_skipped(truncated_folder: Path) -> None:
    epochs(feed(truncated_folder, 2))
    path = truncated_folder.parent / "out" / FILE_NAME
    path.write_text(path.read_text()[:-5])
    restarted = feed(truncated_folder, 2)
    restarted.bad_images.check_recorded()
    assert list(restarted.bad_images.recorded()) == ["cold/3.png"]
