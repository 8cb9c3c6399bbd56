"""Published files are recognized by the beginning of their hashes."""

import hashlib
from pathlib import Path

import pytest
import torch
from torchvision.models import get_model_weights

import transfer.encoders.public_files
from pretrain.recipes import RECIPES
from transfer.__main__ import main
from transfer.cells.declaration import check_declared_recipe
from transfer.encoders.encoder import random_backbone
from transfer.encoders.opening import load_backbone
from transfer.encoders.public_files import PUBLIC_FILES, PublicFile


def test_torchvision_names_its_files_by_the_known_hashes() -> None:
    networks = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
    names = {w.url.rsplit("/", 1)[1] for name in networks for w in get_model_weights(name)}
    assert names <= {expected.file for expected in PUBLIC_FILES}


def test_declared_recipes_exist_or_name_rows_of_a_table() -> None:
    declared = {expected.recipe for expected in PUBLIC_FILES} - {"", *RECIPES}
    assert declared == {
        f"dinov2/lvd142m-{name}" for name in ("vits14", "vitb14", "vitl14", "vitg14")
    }
    for recipe in declared:
        check_declared_recipe(recipe)


@pytest.mark.parametrize("recipe", ["moco/in1k-r50-v2", "dinov2/lvd142m-vitb14", ""])
def test_recipe_of_a_public_file_is_known_without_as(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], recipe: str
) -> None:
    file = tmp_path / "public.pth"
    torch.save(random_backbone(arch="resnet18", stem="imagenet", seed=0).state_dict, file)
    digest = hashlib.md5(file.read_bytes()).hexdigest()[:8]
    stand_in = PublicFile(
        file="x",
        description="A stand-in",
        algorithm="md5",
        digest=digest,
        source="here",
        recipe=recipe,
    )
    monkeypatch.setattr(transfer.encoders.public_files, "PUBLIC_FILES", (stand_in,))
    assert main(["inspect", str(file)]) == 0
    line = next(ln for ln in capsys.readouterr().out.splitlines() if ln.startswith("public file"))
    assert f"A stand-in (md5 {digest}..., here)" in line
    assert (f"compared as {recipe} without" in line) == bool(recipe)
    assert load_backbone(file).declared == recipe
