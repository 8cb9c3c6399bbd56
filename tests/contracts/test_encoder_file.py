"""encoder.pt of every method has the projector of the exported network."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.data.views import ViewRecipe
from pretrain.export import export
from pretrain.methods import METHODS
from pretrain.recipes import RECIPES
from tests.rounding import assert_equal_up_to_rounding
from tests.tiny_methods import forward, tiny_batch, tiny_method
from transfer.encoders.files import read_file
from transfer.encoders.projector import read_heads

WITHOUT_PROJECTOR = {"supervised", "random"}
WITH_PROJECTOR = [name for name in METHODS if name not in WITHOUT_PROJECTOR]


def own_embeddings(name: str, method: nn.Module, images: Tensor) -> Tensor:
    """Embeddings (n, h, d) by the method's own encoder.

    DINO's are cosines with its directions.
    """
    encoder = method.get_submodule("target_encoder.network" if name == "dino" else "encoder")
    embeddings: Tensor = encoder(images)
    return embeddings if embeddings.ndim == 3 else embeddings[:, None]


@pytest.mark.parametrize("name", WITH_PROJECTOR)
def test_the_files_projector_on_the_files_backbone_gives_the_methods_embeddings(
    name: str, tmp_path: Path
) -> None:
    method = tiny_method(name)
    batch = tiny_batch(method)
    forward(method, batch)  # running statistics of these images
    method.eval()
    images, path = batch.views[0], tmp_path / "encoder.pt"
    with torch.no_grad():
        expected = own_embeddings(name, method, images)
    recipe = replace(RECIPES[f"{name}/smoke"], stem="cifar", views=ViewRecipe(size_px=16))
    export(path, method.backbone, "thin", recipe, {}, method.projectors)
    content = torch.load(path, weights_only=True)
    method.backbone.load_state_dict(content["state_dict"])
    with torch.no_grad():
        features = method.backbone(images)
        heads = read_heads(read_file(path).own_fields or {}, features.shape[1])
        rows = [head.network(features[:, head.start : head.stop]) for head in heads]
        embeddings = torch.stack(rows, dim=1)
        if name == "dino":
            directions = method.get_parameter("target_encoder.network.1.last_layer.weight")
            embeddings = normalize(embeddings, dim=2) @ normalize(directions, dim=1).T
    assert_equal_up_to_rounding(embeddings, expected)


@pytest.mark.parametrize("name", sorted(WITHOUT_PROJECTOR))
def test_a_method_without_embeddings_has_no_projector(name: str) -> None:
    assert tiny_method(name).projectors == ()
