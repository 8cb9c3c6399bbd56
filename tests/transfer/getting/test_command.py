"""python -m transfer get-data against a local server."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.transfer.getting.conftest import Publish, Server
from tests.transfer.getting.published import SOURCES, val_images, write_archive, write_kaggles_list
from transfer.__main__ import main
from transfer.datasets.catalog import DATASETS
from transfer.datasets.check import check
from transfer.getting.command import all_sources

ROOT = Path(__file__).parents[3]
FREE = [key for key in SOURCES if all_sources()[key].access == "download"]
ALONE = [key for key in SOURCES if key not in ("imagenet-lists", "sbd")]
"""Sources of sets that need no other source."""


def keys_of(source: str) -> list[str]:
    """Return the data sets that read this source alone."""
    return [
        key for key, info in DATASETS.items() if [ours.key for ours in info.sources] == [source]
    ]


@pytest.mark.parametrize("source", ALONE)
def test_every_published_layout_ends_as_a_whole_set(
    source: str, publish: Publish, data: Path, tmp_path: Path
) -> None:
    publish(source)
    keys = keys_of(source)
    args = ["get-data", *keys, "--data", str(data)]
    if source not in FREE:
        assert main(args) == 1
        args += ["--from", str(tmp_path / "packed")]
    assert main(args) == 0
    assert all(check(key, data, decode=True).ok for key in keys)


def test_a_set_that_is_there_is_checked_and_not_got_again(
    publish: Publish, data: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    publish("dtd")
    args = ["get-data", "dtd", "--data", str(data)]
    (data / "dtd").mkdir()  # an empty folder is filled
    assert [main(args), main(args)] == [0, 0]
    next((data / "dtd").rglob("*.jpg")).unlink()
    assert main(args) == 1
    assert "is incomplete: move it away" in capsys.readouterr().err
    assert len(server.requests) == 1


def test_sbd_masks_are_converted(publish: Publish, data: Path, small_data: Path) -> None:
    for source in ("voc12", "sbd", "imagenet-lists"):
        publish(source)
    (data / "imagenet").symlink_to(small_data / "imagenet")
    keys = ["voc12_seg", "in1k_1pct", "in1k_10pct"]
    assert main(["get-data", *keys, "--data", str(data)]) == 0
    assert all(check(key, data, decode=True).ok for key in keys)


def test_one_set_that_fails_does_not_stop_the_others(
    publish: Publish, data: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    publish("dtd"), publish("pets")
    del server.files["dtd/dtd-r1.0.1.tar.gz"]
    assert main(["get-data", "dtd", "pets", "--data", str(data)]) == 1
    message = capsys.readouterr().err
    assert "dtd is missing: dtd-r1.0.1.tar.gz cannot be downloaded" in message
    assert "Error 404" in message
    assert check("pets", data, decode=False).ok


def test_the_plan_of_all_sets_names_sizes_addresses_and_terms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["get-data", "all", "--data", str(tmp_path / "none"), "--plan"]) == 0
    text = capsys.readouterr().out
    for key, source in all_sources().items():
        assert f"\n{key} " in text
        assert source.terms_url in text
    assert "no published checksum" in text
    assert not (tmp_path / "none").exists()


def test_a_wrong_request_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = {
        "unknown dataset 'unknown'": ["unknown"],
        "no dataset given": [],
        "expected one of jcl": ["--suite", "other"],
        "not a folder": ["dtd", "--from", "/none/at/all"],
    }
    for reason, args in requests.items():
        assert main(["get-data", *args, "--data", str(data)]) == 2
        assert reason in capsys.readouterr().err


def test_the_facts_of_a_source_are_well_formed() -> None:
    checksum = re.compile("|md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}")
    for source in all_sources().values():
        for archive in source.archives:
            assert checksum.fullmatch(archive.checksum), archive
            address = re.compile(f"https?://.*/{re.escape(archive.name)}")
            assert all(map(address.fullmatch, archive.urls)), archive
            assert bool(archive.urls) == (source.access == "download"), archive
            # a download goes on where it ended
            assert archive.checksum or not archive.urls, archive
        assert source.terms_url.startswith("http")
        assert source.access == "download" or source.advice


@pytest.mark.parametrize(
    ("key", "fact"),
    [
        ("birdsnap", "make the folder of birdsnap yourself"),
        ("cars", "get the archives of cars yourself, and pass --from FOLDER"),
        ("dtd", "MB to download"),
    ],
)
def test_the_plan_says_who_gets_the_files(
    key: str, fact: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["get-data", key, "--plan", "--data", str(tmp_path)]) == 0
    last_line = capsys.readouterr().out.splitlines()[-1]
    assert fact in last_line
    assert ("to download" in last_line) == (key == "dtd")


@pytest.mark.parametrize("key", ["birdsnap", "sun397"])
def test_hub_copy_is_pinned_and_said_to_be_untried(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy,) = all_sources()[key].hub_copies
    assert re.search(r"hf://datasets/[\w-]+/[\w-]+@[0-9a-f]{40}\.", copy)
    assert re.search(r"https://github.com/[\w-]+/\w+/blob/[0-9a-f]{40}/", copy)
    assert main(["get-data", key, "--plan", "--data", str(tmp_path)]) == 0
    assert f"{copy} Never downloaded by us." in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.gz in zip"])
def test_imagenet_is_unpacked_from_kaggles_copy(
    kind: str, small_data: Path, data: Path, tmp_path: Path
) -> None:
    imagenet, folder, inside = small_data / "imagenet", tmp_path / "own", "ILSVRC/Data/CLS-LOC"
    images = val_images(imagenet)
    flat = {f"{inside}/val/{file.name}": file for file in images}
    content = {f"{inside}/train": imagenet / "train", **flat}
    folder.mkdir()
    csv = write_kaggles_list(folder, [file.parent.name for file in images])
    inner = "imagenet_object_localization_patched2019.tar.gz"
    if kind != "zip":
        content = {inner: write_archive(folder / inner, content)}
    if kind != "tar.gz":
        whole = folder / "imagenet-object-localization-challenge.zip"
        write_archive(whole, content | {csv.name: csv})
        csv.unlink()
        (folder / inner).unlink(missing_ok=True)
    assert main(["get-data", "imagenet", "--data", str(data), "--from", str(folder)]) == 0
    assert check("in1k", data, decode=False).ok


@pytest.mark.slow
def test_a_check_heeds_a_signal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "small-data.json")  # reading it lasts until somebody writes
    args = [sys.executable, "-m", "transfer", "check-data", "dtd"]
    process = subprocess.Popen([*args, "--data", str(tmp_path)], cwd=ROOT)
    with (tmp_path / "small-data.json").open("w"):
        process.terminate()
        assert process.wait(timeout=10) == 75
