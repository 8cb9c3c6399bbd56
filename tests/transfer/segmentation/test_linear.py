"""The linear head equals NumPy, its optimizer a plain loop."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from pretrain.running import stop
from pretrain.running.processes import Process
from tests.transfer.segmentation.drawn_split import COLORS, drawn_split
from transfer.datasets.segmented import IGNORED, Segmented, write_mask
from transfer.encoders.encoder import InputFormat, random_backbone
from transfer.finetuning import loop
from transfer.finetuning.options import TrainingOptions, of_length
from transfer.finetuning.schedule import learning_rate
from transfer.finetuning.state import Training
from transfer.finetuning.stream import single_samples
from transfer.segmentation.linear import (
    LinearSegmenter,
    distorted,
    slide,
    starts,
    training_sample,
)
from transfer.segmentation.recipe import DINOV2, DINOV3, LinearRecipe
from transfer.segmentation.samples import Sample
from transfer.tasks import TASKS
from transfer.tasks.segmentation import SegmentationLinear

ALONE = Process(device=torch.device("cpu"))
FORM = InputFormat(mean=(0.5,) * 3, std=(0.5,) * 3, size_px=32)
RECIPE = replace(DINOV2.tiny(), crop_px=16)


class Patches(nn.Module):
    """Maps of patches of 4 px with 5 channels.

    Batch norm shows whether it is in eval mode.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(3, 5, 4, 4), nn.BatchNorm2d(5))

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.layers(images)
        return maps


def head(recipe: LinearRecipe = RECIPE, **changes: Any) -> LinearSegmenter:
    torch.manual_seed(1)
    options: dict[str, Any] = {"padded_px": recipe.crop_px, "num_classes": 3, "norm": "BN"}
    return LinearSegmenter(Patches(), FORM, recipe, **{**options, **changes})


def training_of(network: LinearSegmenter, folder: Path) -> Training:
    optimizer = network.optimizer(network.recipe)
    return Training(network=network, optimizer=optimizer, schedule=network.recipe, folder=folder)


def crops(count: int = 4) -> list[Sample]:
    generator = torch.Generator().manual_seed(2)

    def drawn(*shape: int, below: int) -> Tensor:
        return torch.randint(0, below, shape, dtype=torch.uint8, generator=generator)

    pairs = [(drawn(3, 16, 16, below=256), drawn(16, 16, below=3)) for _ in range(count)]
    return [Sample(image=image, mask=mask) for image, mask in pairs]


def bilinear(maps: np.ndarray, size: int) -> np.ndarray:
    """Return maps (n, L, h, h) upsampled bilinearly by a plain loop."""
    side = maps.shape[2]
    positions = np.clip((np.arange(size) + 0.5) * side / size - 0.5, 0, side - 1)
    low = np.floor(positions).astype(int)
    high, share = np.minimum(low + 1, side - 1), positions - low
    rows = maps[:, :, low] * (1 - share)[:, None] + maps[:, :, high] * share[:, None]
    mixed: np.ndarray = rows[..., low] * (1 - share) + rows[..., high] * share
    return mixed


def test_logits_are_norm_convolution_and_upsampling_written_out() -> None:
    network = head().eval()
    with torch.no_grad():
        for tensor in (network.norm.running_mean, network.norm.weight, network.norm.bias):
            tensor.normal_()  # type: ignore[operator]
        network.norm.running_var.uniform_(0.5, 2)  # type: ignore[operator]
        images = torch.randn(2, 3, 16, 16)
        result = network.logits(images).numpy()
        maps = network.maps(images).double().numpy()
    state = {name: values.double().numpy() for name, values in network.state_dict().items()}
    scale = state["norm.weight"] / np.sqrt(state["norm.running_var"] + 1e-5)
    shift = state["norm.bias"] - state["norm.running_mean"] * scale
    normed = maps * scale[:, None, None] + shift[:, None, None]
    coarse = np.einsum("nchw,lc->nlhw", normed, state["classifier.weight"][..., 0, 0])
    coarse += state["classifier.bias"][:, None, None]
    assert np.allclose(result, bilinear(coarse, 16), atol=1e-5)


def test_in_training_the_norm_has_the_statistics_of_the_batch_after_dropout() -> None:
    network = head(replace(DINOV3.tiny(), crop_px=16))
    observed: list[Tensor] = []
    network.norm.register_forward_hook(lambda *call: observed.extend((call[1][0], call[2])))
    network(crops())
    dropped, normed = observed
    assert (dropped == 0).flatten(2).all(dim=2).any() or network.dropout.p == 0.1
    assert torch.allclose(normed.mean(dim=(0, 2, 3)), torch.zeros(5), atol=1e-5)
    assert network.dropout.p == 0.1


def test_the_encoder_is_frozen_and_stays_in_eval_mode() -> None:
    network = head().train()
    encoder = network.encoder[0]
    previous = {name: values.clone() for name, values in encoder.state_dict().items()}
    network(crops())["loss_seg"].backward()
    assert not encoder.training
    assert not any(weight.requires_grad for weight in encoder.parameters())
    assert all(torch.equal(values, previous[name]) for name, values in encoder.state_dict().items())
    assert {name.partition(".")[0] for name in network.state_dict()} == {"norm", "classifier"}


def test_the_encoder_keeps_its_precision_if_the_head_trains_with_autocast() -> None:
    network = head()
    network.eval()
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(2, 3, 16, 16, generator=generator)
    for dtype in (torch.float32, torch.bfloat16):
        network.encoder[0].to(dtype)
        expected = network.maps(images)
        for autocast in (torch.bfloat16, torch.float16):
            with torch.autocast("cpu", autocast):
                assert torch.equal(network.maps(images), expected)


def test_an_encoder_whose_maps_depend_on_the_batch_is_refused() -> None:
    network = head()
    assert network.verify({}, "patches")["maps"] < 1e-5
    network.encoder[0].train()
    with pytest.raises(ValueError, match="maps of patches are not finite"):
        network.verify({}, "patches")


def test_maps_are_compared_without_tf32() -> None:
    network, allowed = head(), list[bool]()
    network.encoder[0].register_forward_hook(
        lambda *_: allowed.append(torch.backends.cudnn.allow_tf32)
    )
    network.verify({}, "patches")
    assert allowed == [False] * 3


def test_a_step_is_adamws_by_a_plain_loop(tmp_path: Path) -> None:
    network = head(replace(RECIPE, iterations=3, warmup_iterations=0))
    created = training_of(network, tmp_path)
    weights = {name: value.detach().double().clone() for name, value in network.named_parameters()}
    first, second = ({n: torch.zeros_like(w) for n, w in weights.items()} for _ in range(2))
    for step in range(1, 4):
        rate = 1e-3 * (1 - (step - 1) / 3)
        created.optimizer.param_groups[0]["lr"] = rate
        created.optimizer.zero_grad()
        network(crops())["loss_seg"].backward()
        for name, value in network.named_parameters():
            assert value.grad is not None
            gradient = value.grad.double()
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.999 * second[name] + 0.001 * gradient**2
            change = first[name] / (1 - 0.9**step)
            change /= (second[name] / (1 - 0.999**step)).sqrt() + 1e-8
            weights[name] = weights[name] * (1 - rate * 1e-4) - rate * change
        created.optimizer.step()
    for name, value in network.named_parameters():
        assert torch.allclose(value.double(), weights[name], atol=1e-6), name


def test_the_rate_falls_linearly_or_by_half_a_cosine_from_the_first_step() -> None:
    assert learning_rate(DINOV2, 0) == pytest.approx(1e-9)
    assert learning_rate(DINOV2, 750) == pytest.approx(1e-3 * (1 - 750 / 40_000) * 0.5000005)
    assert learning_rate(DINOV2, 20_000) == pytest.approx(5e-4)
    assert learning_rate(DINOV3, 20_000) == pytest.approx(5e-4)
    assert learning_rate(DINOV3, 10_000) == pytest.approx(5e-4 * (1 + 2**-0.5))
    assert learning_rate(DINOV3, 0) == 0


def test_a_short_training_warms_up_for_at_most_half_of_it() -> None:
    assert of_length(DINOV2, 0.1).warmup_iterations == 1500
    assert of_length(DINOV2, 0.001).warmup_iterations == 20


def test_a_stopped_training_resumes_with_adams_moments(tmp_path: Path) -> None:
    samples = single_samples(drawn_split(tmp_path), training_sample, RECIPE, 0)
    whole, part, again = head(), head(), head()
    loop.train(training_of(whole, tmp_path / "whole"), samples, seed=0, process=ALONE)
    calls: list[object] = []

    def ask_to_stop(*_: object) -> None:
        calls.append(1)
        if len(calls) == 5:
            stop._received_signals.append(15)

    part.register_forward_pre_hook(ask_to_stop)
    with pytest.raises(stop.Stopped):
        loop.train(training_of(part, tmp_path / "part"), samples, seed=0, process=ALONE)
    stop._received_signals.clear()
    loop.train(training_of(again, tmp_path / "part"), samples, seed=0, process=ALONE)
    for name, values in whole.state_dict().items():
        assert torch.equal(values, again.state_dict()[name]), name


def test_windows_end_with_the_image_and_overlap() -> None:
    assert starts(512, 512, 341) == [0]
    assert starts(683, 512, 341) == [0, 171]
    assert starts(1300, 512, 341) == [0, 341, 682, 788]
    assert replace(DINOV2, crop_px=448).window_step == 299
    assert DINOV2.window_step == 341


def test_one_window_equals_the_whole_image() -> None:
    image = torch.randn(1, 3, 8, 8)
    assert torch.equal(slide(lambda x: x * 2, image, 8, 5), image * 2)


def test_overlapping_windows_are_averaged() -> None:
    def column(window: Tensor) -> Tensor:
        """The place in the window, which differs between windows."""
        return torch.arange(8.0).expand(1, 1, 8, 8)

    result = slide(column, torch.zeros(1, 3, 8, 12), 8, 5)[0, 0, 0]
    # windows at 0 and 4
    expected = [0, 1, 2, 3, *((x + x - 4) / 2 for x in range(4, 8)), 4, 5, 6, 7]
    assert result.tolist() == expected


def test_a_crop_that_patches_do_not_divide_is_padded_on_all_sides() -> None:
    network = head(padded_px=20)
    images = torch.ones(1, 3, 16, 16)
    padded = torch.zeros(1, 3, 20, 20)
    padded[:, :, 2:18, 2:18] = 1
    torch.testing.assert_close(network.maps(images), network.encoder[0](padded))
    assert network.logits(images).shape == (1, 3, 16, 16)


def test_the_predicted_mask_has_the_size_of_its_image() -> None:
    image = torch.randint(0, 256, (3, 23, 31), dtype=torch.uint8)
    classes = head().eval().classes(image)
    assert classes.shape == (23, 31)
    assert classes.dtype == torch.uint8


def test_image_and_mask_of_a_sample_show_the_same_place(tmp_path: Path) -> None:
    split, recipe = drawn_split(tmp_path), replace(RECIPE, crop_px=32)
    agreeing = []
    for seed in range(20):
        sample = training_sample(split, seed % 4, recipe, seed)
        assert sample.image.shape[1:] == sample.mask.shape
        assert max(sample.mask.shape) <= 32
        # colors are distorted, but red stays red and blue stays blue
        red, _, blue = sample.image.int()
        classes = sample.mask[sample.mask != 0]
        expected = torch.where(red > blue, 1, 2)[sample.mask != 0]
        agreeing.append(float((classes == expected).float().mean()) if len(classes) else 1.0)
    assert np.median(agreeing) > 0.9


def test_a_crop_of_one_class_is_drawn_again(tmp_path: Path) -> None:
    mask = np.zeros((64, 640), dtype=np.uint8)
    mask[:, 600:] = 1
    write_mask(tmp_path / "mask.png", mask)
    Image.fromarray(np.array(COLORS, dtype=np.uint8)[mask]).save(tmp_path / "0.png")
    split = Segmented(tmp_path, ["0.png"], ["mask.png"], ("background", "red"))
    recipe = replace(RECIPE, crop_px=64, scales=(1.0, 1.0), longest=0.0)

    def share_with_both(recipe: LinearRecipe) -> float:
        samples = [training_sample(split, 0, recipe, seed) for seed in range(60)]
        return float(np.mean([len(sample.mask.unique()) > 1 for sample in samples]))

    assert share_with_both(recipe) > 2 * share_with_both(replace(recipe, redraws=0))


def test_the_long_side_is_limited(tmp_path: Path) -> None:
    write_mask(tmp_path / "mask.png", np.zeros((10, 100), dtype=np.uint8))
    Image.new("RGB", (100, 10)).save(tmp_path / "0.png")
    split = Segmented(tmp_path, ["0.png"], ["mask.png"], ("background",))
    recipe = replace(RECIPE, crop_px=20, scales=(1.0, 1.0))
    assert training_sample(split, 0, recipe, 0).mask.shape == (8, 20)
    assert training_sample(split, 0, replace(recipe, longest=0.0), 0).mask.shape == (20, 20)


def test_distortion_changes_colors_within_bounds() -> None:
    image = Image.fromarray(np.full((4, 4, 3), (200, 100, 50), dtype=np.uint8))
    sampled = [distorted(image, np.random.default_rng(seed)) for seed in range(40)]
    colors = {tuple(np.array(item)[0, 0].tolist()) for item in sampled}
    assert len(colors) > 30


def test_passes_of_a_part_of_the_batch_are_refused() -> None:
    task = TASKS["voc12_seg_linear"]
    assert isinstance(task, SegmentationLinear)
    with pytest.raises(ValueError, match="statistics of all 16 images"):
        task.with_options(TrainingOptions(gpus=1, images_per_gpu=4))
    assert "images_per_gpu" not in task.supported_options


def test_the_grid_sets_the_crop_by_the_encoders_stride() -> None:
    encoder = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    task = TASKS["voc12_seg_linear@grid32"]
    assert isinstance(task, SegmentationLinear)
    encoder.__dict__["maps_stride"] = (14, "")
    assert task.for_backbone(encoder).recipe.crop_px == 448
    encoder.__dict__["maps_stride"] = (16, "")
    assert task.for_backbone(encoder).recipe.crop_px == 512


def test_ignored_pixels_of_small_images_count_in_the_mean() -> None:
    network = head().eval()
    sample = crops(1)[0]
    small = Sample(image=sample.image[:, :8], mask=sample.mask[:8])
    whole = Sample(
        image=torch.cat([small.image, torch.full((3, 8, 16), 127, dtype=torch.uint8)], dim=1),
        mask=torch.cat([small.mask, torch.full((8, 16), IGNORED, dtype=torch.uint8)]),
    )
    losses = [network([item])["loss_seg"].item() for item in (small, whole)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
