"""The classifier on other viewpoints: numbers of its classes, and its worst mistakes."""

from pathlib import Path

import numpy as np
import pytest
import torch

import transfer.frozen.features
from transfer.datasets.imagenet.objectnet import WNIDS, with_words
from transfer.datasets.images import ImageArrays, Images, encode_names
from transfer.frozen.classifier import ClassifierTest, Heads
from transfer.frozen.features import Features
from transfer.running.folders import Folders
from transfer.tasks.robustness import ObjectNetEval


def test_only_classes_that_objectnet_names_get_its_label() -> None:
    assert with_words(["n02870880", WNIDS["Chair"]]) == ("n02870880", "Chair (n04099969)")


def test_the_worst_image_leads_and_only_tested_classes_have_an_accuracy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    classes = ("n0", WNIDS["Chair"], WNIDS["Bench"])
    truth = torch.arange(30) % 2 + 1  # ObjectNet has the last two
    names = [f"objectnet-1.0/images/{i}.png" for i in range(30)]
    pixels = np.zeros((30, 2, 2, 3), np.uint8)
    source = ImageArrays(pixels, encode_names(names))
    splits = {
        "objectnet13": Images(source, truth.numpy() - 1, classes[1:]),
        "in100": Images(source, truth.numpy(), classes),
    }
    monkeypatch.setattr(transfer.frozen.features, "open_images", lambda key, *_: splits[key])
    generator = torch.Generator().manual_seed(0)
    head = Heads(torch.randn(1, 3, 4, generator=generator), torch.zeros(1, 3))
    features = torch.randn(30, 4, generator=generator)
    test = ClassifierTest(head, classes, Features(features, truth - 1), classes[1:], files=())
    folders, task = Folders(Path(), Path(), Path()), ObjectNetEval()
    predictions = task.run(test, folders, seed=0)
    words = ("n0", f"Chair ({classes[1]})", f"Bench ({classes[2]})")
    assert set(predictions.details["accuracy_per_class"]) == set(words[1:])
    scores = (features @ head.weight[0].T).tolist()
    leads = [max(row) - row[true] for row, true in zip(scores, truth, strict=True)]
    worst = max(range(30), key=lambda i: leads[i])
    tile = task.gallery(predictions, folders)[0]
    guess = words[scores[worst].index(max(scores[worst]))]
    assert tile.name == names[worst]
    assert tile.caption == f"{words[truth[worst]]} taken for {guess}"
