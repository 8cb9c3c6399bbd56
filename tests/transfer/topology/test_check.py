"""Running statistics name their network and input; a file that they contradict is refused."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchvision
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms.functional import normalize

from transfer.api import evaluate
from transfer.backbone import Backbone, BackboneError, load_backbone, random_backbone
from transfer.convert.architectures import Stem
from transfer.convert.resnet import build_resnet, network_with
from transfer.datasets.expected import DataError
from transfer.encoders.encoder import Encoder
from transfer.topology import check
from transfer.topology.check import (
    MIN_GAIN,
    MIN_IMAGES,
    Score,
    Topology,
    check_topology,
    with_checked_topology,
    write_as_fits,
)
from transfer.topology.known_networks import INPUTS, NETWORKS, BlurPool, Input, Network
from transfer.topology.statistics import MAX_DIVERGENCE, divergence, natural_images

CASES: tuple[tuple[str, Stem], ...] = (
    ("resnet18", "imagenet"),
    ("resnet18", "cifar"),
    ("resnet50", "imagenet"),
)
SIZE_PX: dict[Stem, int] = {"imagenet": 32, "cifar": 16}
"""Smallest sizes at which every variant has maps to filter."""


@cache
def photographs(size_px: int) -> Tensor:
    """Return smooth random images (16, 3, H, W), whose neighbors are alike as in photographs."""
    noise = torch.rand(MIN_IMAGES, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    tint = torch.tensor([0.9, 0.7, 0.5]).reshape(3, 1, 1)
    return nn.functional.interpolate(noise * tint, size=size_px, mode="bicubic").clamp(0, 1)


def trained(arch: str, stem: Stem, network: Network, way: Input) -> Backbone:
    """Return a backbone whose running statistics are those of the photographs in this network."""
    backbone = random_backbone(arch=arch, stem=stem, seed=0)
    model = build_resnet(arch, stem)
    model.load_state_dict(backbone.state_dict)
    names = list(model.state_dict())
    network.change(model)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0  # keep the statistics of the last batch
    with torch.no_grad():
        model.train()(way(photographs(SIZE_PX[stem])))
    weights = dict(zip(names, model.state_dict().values(), strict=True))
    return replace(backbone, state_dict=weights)


@pytest.mark.parametrize(
    ("arch", "stem", "network"),
    [
        pytest.param(arch, stem, network, id=f"{arch}-{stem}-{network.name}")
        for arch, stem in CASES
        for network in NETWORKS
        if network.fits(arch, stem) and (arch == "resnet18" or network.bottleneck)
    ],
)
def test_the_network_that_the_statistics_were_taken_from_is_named(
    arch: str, stem: Stem, network: Network
) -> None:
    backbone = trained(arch, stem, network, INPUTS[0])
    topology = check_topology(backbone, photographs(SIZE_PX[stem]), (SIZE_PX[stem],))
    best = min(topology.networks, key=lambda score: score.nats)
    assert best.name == network.name
    gain = topology.networks[0].nats - best.nats
    assert (topology.contradiction != "") == (gain > MIN_GAIN)
    assert ("not contradicted" in topology.sentence) == (stem == network.stem)


def test_a_variant_that_fits_a_little_better_makes_the_topology_unclear() -> None:
    nats = {"plain": 0.01, "other": 0.008, "worse": 0.012}
    plain, other, worse = (Score(name=n, nats=value, size_px=64) for n, value in nats.items())
    for inputs, networks in (((plain, other), (plain, worse)), ((plain, worse), (plain, other))):
        topology = Topology(num_images=32, inputs=inputs, networks=networks)
        assert topology.contradiction == ""
        assert "unclear on 32 photographs" in topology.sentence
        assert "plain: 0.0100" in topology.sentence


def test_statistics_of_no_known_network_are_undecided() -> None:
    backbone = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    large = {n: t * 1e4 for n, t in backbone.state_dict.items() if n.endswith("running_var")}
    noise = replace(backbone, state_dict=backbone.state_dict | large)
    assert "undecided" in check_topology(noise, photographs(32), (32,)).sentence


def test_the_divergence_is_that_of_two_normals() -> None:
    generator = torch.Generator().manual_seed(0)
    (m, mu), (v, s) = torch.randn(2, 5, generator=generator), torch.rand(2, 5, generator=generator)
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(normal(m, v.sqrt()), normal(mu, s.sqrt()))
    mean = float(expected.clamp(max=MAX_DIVERGENCE).mean())
    found = divergence((m, v), (mu, s))
    assert found == pytest.approx(mean, rel=64 * torch.finfo(m.dtype).eps)


BY_NAME = {network.name: network for network in NETWORKS}
PLAIN = BY_NAME["as torchvision"]


def foreign(network: str = PLAIN.name, way: int = 0) -> Backbone:
    backbone = trained("resnet18", "imagenet", BY_NAME[network], INPUTS[way])
    return replace(backbone, file_sha256="0" * 64, source="moco.pth: MoCo layout", sha256="1" * 64)


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> list[Topology]:
    """Return the comparisons that are made, with random images in place of photographs."""
    made: list[Topology] = []

    def compare(backbone: Backbone, folder: Path) -> Topology:
        made.append(check_topology(backbone, photographs(32), (32,)))
        return made[-1]

    monkeypatch.setattr(check, "compare_with_photographs", compare)
    return made


def test_a_backbone_that_is_not_contradicted_says_so_and_is_compared_once(
    comparisons: list[Topology], tmp_path: Path
) -> None:
    for _ in range(2):
        backbone = with_checked_topology(foreign(), tmp_path, tmp_path)
    assert "topology not contradicted by running statistics on 16 photographs" in backbone.source
    assert len(comparisons) == 1


def test_another_network_is_refused_unless_the_user_trusts_the_names(
    comparisons: list[Topology], tmp_path: Path
) -> None:
    backbone = foreign("no max-pool")
    with pytest.raises(BackboneError, match=r"another network: no max-pool .*--trust-topology"):
        with_checked_topology(backbone, tmp_path, tmp_path)
    trusted = with_checked_topology(backbone, tmp_path, tmp_path, trusted=True)
    assert "fit another network: no max-pool" in trusted.source
    folders: dict[str, Any] = {"data": tmp_path / "absent", "runs": tmp_path}
    with pytest.raises(BackboneError, match="another network: no max-pool"):
        evaluate(backbone, "cifar10_knn", **folders)
    with pytest.raises(DataError, match="absent"):
        evaluate(backbone, "cifar10_knn", **folders, trust_topology=True)


def test_without_photographs_the_source_says_that_topology_was_not_checked(tmp_path: Path) -> None:
    backbone = with_checked_topology(foreign(), tmp_path / "data", tmp_path / "cache")
    assert "topology not checked: 0 photographs are at hand" in backbone.source
    assert not (tmp_path / "cache").exists()  # photographs may come


@pytest.mark.parametrize("form", ["ssl-backbone/1", "ssl-encoder/1"])
def test_our_own_file_and_a_random_network_are_not_compared(
    form: str, comparisons: list[Topology], tmp_path: Path
) -> None:
    own = replace(foreign(), source=f"jcl.pt: {form} layout, prefix state_dict.")
    random = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    for backbone in (own, random):
        assert with_checked_topology(backbone, tmp_path, tmp_path) is backbone
    assert comparisons == []


@pytest.mark.parametrize(
    ("network", "way"),
    [
        ("no max-pool", 0),
        *((PLAIN.name, n) for n, way in enumerate(INPUTS) if "CIFAR" not in way.name),
    ],
)
def test_the_rebuilt_file_computes_what_the_fitting_network_computes(
    network: str, way: int, tmp_path: Path
) -> None:
    backbone, images = foreign(network, way), photographs(32)
    topology = check_topology(backbone, images, (32,))
    assert (topology.network.name, topology.input.name) == (network, INPUTS[way].name)
    write_as_fits(backbone, topology, tmp_path / "fits.pt")
    rebuilt = load_backbone(tmp_path / "fits.pt")
    expected = network_with("resnet18", "imagenet", backbone.state_dict).double()
    BY_NAME[network].change(expected)
    with torch.inference_mode():
        form = rebuilt.input
        found = rebuilt.network().double()(normalize(images.double(), form.mean, form.std))
        wanted = expected(INPUTS[way](images.double()))
    # mean and std are rounded to float32 in one of the two
    assert torch.allclose(found, wanted, rtol=0, atol=1e-4 * float(wanted.abs().max()))


def test_a_network_that_cannot_be_built_is_not_written(tmp_path: Path) -> None:
    backbone = foreign("anti-aliased by blur-pool")
    topology = check_topology(backbone, photographs(32), (32,))
    with pytest.raises(BackboneError, match=r"anti-aliased by blur-pool.*cannot build"):
        write_as_fits(backbone, topology, tmp_path / "fits.pt")
    assert not (tmp_path / "fits.pt").exists()


def test_an_encoder_whose_first_norm_saw_other_inputs_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    images, (assumed, other) = photographs(32), INPUTS[:2]
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16, momentum=1.0), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    monkeypatch.setattr(check, "natural_images", lambda *_, **__: images)

    def checked(seen: Input, *, trusted: bool = False) -> str:
        """Return the source of an encoder that states the assumed input and saw this one."""
        network.train()(seen(images))
        form: dict[str, Any] = {"size_px": 32, "mean": assumed.mean, "std": assumed.std}
        encoder = Encoder.from_module(network, **form)
        return with_checked_topology(encoder, tmp_path, tmp_path, trusted=trusted).source

    assert "not contradicted by running statistics on 16 photographs" in checked(assumed)
    with pytest.raises(BackboneError, match=f"another input: {re.escape(other.name)}"):
        checked(other)
    assert " fit another " in checked(other, trusted=True)


IMAGES = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "replaced"),
    [
        ("dilated, output stride halved", [False, False, True]),
        ("dilated, output stride quartered", [False, True, True]),
    ],
)
def test_dilated_networks_are_torchvisions(name: str, replaced: list[bool]) -> None:
    network = build_resnet("resnet50", "imagenet").eval()
    expected = torchvision.models.resnet50(weights=None, replace_stride_with_dilation=replaced)
    expected.fc = nn.Identity()
    expected.load_state_dict(network.state_dict())
    BY_NAME[name].change(network)
    with torch.inference_mode():
        assert torch.equal(network(IMAGES), expected.eval()(IMAGES))


def test_blur_pool_is_the_binomial_filter_at_every_second_pixel() -> None:
    maps = torch.arange(2.0 * 6 * 6).reshape(1, 2, 6, 6).square()
    padded = F.pad(maps, (1, 1, 1, 1), mode="reflect")
    line = torch.tensor([1.0, 2.0, 1.0]) / 4
    expected = torch.zeros(1, 2, 3, 3)
    for y in range(3):
        for x in range(3):
            patch = padded[:, :, 2 * y : 2 * y + 3, 2 * x : 2 * x + 3]
            expected[:, :, y, x] = torch.einsum("ncij,i,j->nc", patch, line, line)
    assert torch.equal(BlurPool()(maps), expected)  # all values are multiples of 1/16


@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
def test_an_anti_aliased_network_has_no_strided_3x3_convolution(arch: str) -> None:
    network = build_resnet(arch, "imagenet").eval()
    shape = network(IMAGES).shape
    BY_NAME["anti-aliased by blur-pool"].change(network)
    with torch.inference_mode():
        assert network(IMAGES).shape == shape
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    strided = {m.kernel_size for m in convolutions if m.stride == (2, 2)}
    assert strided == {(7, 7), (1, 1)}  # the stem and the shortcuts, as in timm
    assert {m.stride for m in convolutions} == {(1, 1), (2, 2)}


def write(path: Path, side_px: int, gray: int = 128) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((side_px, side_px + 8, 3), gray, np.uint8)).save(path)


def test_photographs_of_all_folders_are_taken_in_turn(tmp_path: Path) -> None:
    for folder in range(6):
        for number in range(10):
            write(tmp_path / f"set/{folder}/{number}.jpg", 40, gray=40 * folder)
    images = natural_images(tmp_path, count=6, size_px=32)
    assert images.shape == (6, 3, 32, 32)
    assert len({round(float(image.mean()), 2) for image in images}) >= 5
    assert torch.equal(images, natural_images(tmp_path, count=6, size_px=32))


def test_sets_behind_links_are_looked_into_once(tmp_path: Path) -> None:
    for name in ("0.jpg", "@eaDir/0.jpg", "._0.jpg"):
        write(tmp_path / "elsewhere/set" / name, 40)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/loop").symlink_to(tmp_path / "data")
    assert len(natural_images(tmp_path / "data", count=6, size_px=32)) == 1


def test_masks_small_and_broken_images_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "mask.png", 40)
    write(tmp_path / "small.jpg", 31)
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8 no image")
    write(tmp_path / "good.JPEG", 40)
    assert len(natural_images(tmp_path, count=4, size_px=32)) == 1
