"""Checks of detectors: answers on the device against those of the CPU, and the time of a step."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from transfer.backbone import random_backbone
from transfer.checks.comparison import (
    Differences,
    exact_float32,
    norm_difference,
    roundings,
    worst_relative_difference,
)
from transfer.checks.fixed_detector import (
    Answer,
    answer,
    everything_sampled,
    fill,
    in_double,
)
from transfer.checks.report import Facts, NotCheckedError, Place
from transfer.checks.small_samples import keypoints, outlines, small_samples
from transfer.checks.speed import first_that_fits, seconds_per_call, with_peak_memory
from transfer.checks.training_step import OnePass, training_step
from transfer.detection.engines import EngineName, build_detector, is_available
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.sample import Detector, ResizedDetections, Sample
from transfer.detection.train import sgd
from transfer.finetuning.gpu import place as place_network
from transfer.finetuning.schedule import Precision

NUM_CLASSES = 3
EPS = torch.finfo(torch.float32).eps
ULPS = 8
"""Units in the last place by which exponentials and quotients may differ between devices.

They move boxes, which are float32 also where convolutions are float64, by as many units of 128 px.
RoIAlign of moved boxes moves everything behind it.
"""
BOX_PX = 4 * ULPS * 128 * EPS
"""Difference of boxes in px: proposals are decoded from anchors, and detections from proposals."""
LOSS = SCORE = 16 * ULPS * EPS
"""Difference of a loss, relative to it, and of scores and mask probabilities, which are at most 1.

A box that moves by BOX_PX / 4 on a map of stride 4 moves its features by up to 8 * ULPS * EPS.
"""
GRADIENT = 0.01
"""Difference of all gradients in units of their norm: a unit near zero may be on or off behind a
moved box, which changes its gradient as a whole."""
SMALL_BATCH = 4
"""Factor by which batch norm over two small images enlarges the roundings of a network."""
LOW_PRECISION: dict[Precision, float] = {"bfloat16": 0.05, "float16": 0.02}
"""Relative difference of the sum of losses from that in float32, before the first step.

The logits are small then, so that their roundings matter little. Which proposals are kept changes.
"""


def check_answers(recipe: DetectorRecipe, engine: EngineName, place: Place) -> Facts:
    """Compare losses, gradients and detections on the device with those of the CPU.

    In float64 no rounding decides which proposal is kept, so all must agree. In float32 the losses
    are compared, and the detections of which some may be kept or dropped by a rounding.
    """
    require_engine(engine)
    differences = Differences()
    device = torch.device(place.device)
    with exact_float32():
        expected = fixed_answer(recipe, engine, torch.device("cpu"), double=True)
        compare(differences, "float64", fixed_answer(recipe, engine, device, double=True), expected)
        rounded = fixed_answer(recipe, engine, device, double=False)
    bound = SMALL_BATCH * roundings(torch.float32)
    differences.add("float32 losses", worst_loss(rounded, expected), bound)
    share = share_found_again(rounded.found, expected.found)
    differences.add("float32 detections not found again", 1 - share, 0.1)
    return differences.checked()


def compare(differences: Differences, name: str, found: Answer, expected: Answer) -> None:
    """Note the differences of two answers that only roundings of float32 tell apart."""
    differences.add(f"{name} losses", worst_loss(found, expected), LOSS)
    apart = norm_difference(found.gradients, expected.gradients)
    differences.add(f"{name} gradients", apart, GRADIENT)
    pairs = list(zip(found.found, expected.found, strict=True))
    same = all(torch.equal(one.classes.cpu(), other.classes) for one, other in pairs)
    differences.require(f"{name} classes of detections", same, "not those of the CPU")
    if not same:
        return
    for kind, bound in (("boxes", BOX_PX), ("scores", SCORE), ("masks", SCORE)):
        worst = max(largest(tensor_of(one, kind), tensor_of(other, kind)) for one, other in pairs)
        differences.add(f"{name} {kind}", worst, bound)
    worst = max(largest(one.keypoints, other.keypoints) for one, other in pairs)
    differences.add(f"{name} keypoints", worst, BOX_PX)


def tensor_of(detections: ResizedDetections, kind: str) -> Tensor | None:
    """Return the boxes, scores or masks of detections."""
    tensors = {
        "boxes": detections.boxes,
        "scores": detections.scores,
        "masks": detections.masks,
    }
    return tensors[kind]


def largest(one: Tensor | None, other: Tensor | None) -> float:
    """Return the largest difference of tensors of one shape; 0 where neither has entries."""
    if one is None or other is None or not one.numel():
        return 0.0
    return float((one.cpu().double() - other.cpu().double()).abs().max())


def worst_loss(found: Answer, expected: Answer) -> float:
    """Return the largest relative difference of a loss; NaN if one is not finite."""
    return worst_relative_difference(found.losses, expected.losses)


def share_found_again(
    found: Sequence[ResizedDetections], expected: Sequence[ResizedDetections]
) -> float:
    """Return the share of the expected detections with one of their class within 0.1 px."""
    again, count = 0, 0
    for one, other in zip(found, expected, strict=True):
        apart = torch.cdist(other.boxes.cpu().double(), one.boxes.cpu().double(), p=torch.inf)
        apart[other.classes.cpu()[:, None] != one.classes.cpu()] = torch.inf
        again += int((apart < 0.1).any(dim=1).sum())
        count += len(other.boxes)
    return again / max(1, count)


def fixed_answer(
    recipe: DetectorRecipe, engine: EngineName, device: torch.device, *, double: bool
) -> Answer:
    """Return the answer on the device to fixed samples from fixed weights."""
    recipe = small_recipe(recipe)
    detector = build_detector(engine, recipe, arch="resnet18", num_classes=NUM_CLASSES, norm="BN")
    fill(detector.network.state_dict())
    if double:
        in_double(detector.network)
    place_network(detector.network, device)
    return answer(detector, [sample.to(device) for sample in small_samples(2, NUM_CLASSES)])


def small_recipe(recipe: DetectorRecipe) -> DetectorRecipe:
    """Return a narrow recipe in which nothing is drawn; of c4, whose head is slow, a lean one."""
    narrow = everything_sampled(recipe)
    return replace(narrow, rpn_proposals=(4, 4)) if recipe.neck == "c4" else narrow


def check_low_precision(recipe: DetectorRecipe, engine: EngineName, place: Place) -> Facts:
    """Compare the first losses under autocast with those in float32; gradients must be finite.

    Roundings decide which proposals are kept, so that the losses are near and no more.
    """
    require_engine(engine)
    differences = Differences()
    device = torch.device(place.device)
    with exact_float32():
        expected = first_pass(recipe, engine, torch.device("cpu"), "float32")
        for precision, bound in LOW_PRECISION.items():
            if precision == "float16" and place.device == "cpu":
                differences.facts["float16"] = "needs CUDA: trainings on a CPU refuse it"
                continue
            found = first_pass(recipe, engine, device, precision)
            differences.add(f"{precision} losses", abs(found.loss / expected.loss - 1), bound)
            differences.require(f"{precision} gradients", found.finite, "not finite")
    return differences.checked()


def first_pass(
    recipe: DetectorRecipe, engine: EngineName, device: torch.device, precision: Precision
) -> OnePass:
    """Return the sum of the losses before the first step, and whether gradients are finite."""
    detector = new_detector(small_recipe(recipe), engine, "resnet18", NUM_CLASSES)
    place_network(detector.network, device)
    samples = [sample.to(device) for sample in small_samples(2, NUM_CLASSES)]
    return OnePass.of(detector.network.train(), samples, device, precision)


def new_detector(
    recipe: DetectorRecipe, engine: EngineName, arch: str, num_classes: int
) -> Detector:
    """Return a detector on a random backbone, as it is before training."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        detector = build_detector(engine, recipe, arch=arch, num_classes=num_classes, norm="BN")
    detector.load_backbone(random_backbone(arch=arch, stem="imagenet", seed=0).state_dict)
    return detector


def require_engine(engine: EngineName) -> None:
    """Raise NotCheckedError if the engine is not installed."""
    if engine == "detectron2" and not is_available():
        raise NotCheckedError("detectron2 is not installed")


def measure_steps(recipe: DetectorRecipe, engine: EngineName, place: Place) -> Facts:
    """Measure the seconds of a training step at the recipe's sizes, without loading images.

    Two images are those of each of the papers' eight GPUs; the whole batch is what one GPU trains
    on, or the largest part of it that fits.
    """
    require_engine(engine)
    if place.small:
        return _measure_batch(recipe.tiny(), engine, place, "float32", "", 2)
    facts = _measure_batch(recipe, engine, place, "float32", " of 2 images", 2)
    for precision in ("float32", "bfloat16"):
        measure = partial(_measure_batch, recipe, engine, place, precision, "")
        facts |= first_that_fits(measure, (recipe.batch_size, 8, 4, 2))
    return facts


def _measure_batch(
    recipe: DetectorRecipe,
    engine: EngineName,
    place: Place,
    precision: Precision,
    title: str,
    images: int,
) -> Facts:
    """Return time and memory of a step; the title tells its facts from those of other batches."""
    device = torch.device(place.device)
    arch, calls = ("resnet18", 1) if place.small else ("resnet50", 4)
    detector = new_detector(recipe, engine, arch, num_classes=20 if recipe.neck == "c4" else 80)
    place_network(detector.network, device)
    optimizer = sgd(detector, recipe)
    for group in optimizer.param_groups:
        group["lr"] = 1e-4  # the first steps of a warm-up: nothing diverges
    samples = [sample.to(device) for sample in large_samples(recipe, images)]
    network = detector.network.train()
    step = partial(training_step, network, optimizer, samples, device, precision)
    seconds, memory = with_peak_memory(
        partial(seconds_per_call, step, device, warm_up=calls // 2, calls=calls), device
    )
    return {
        f"seconds per iteration{title} in {precision}": seconds,
        f"images per pass{title} in {precision}": float(images),
        f"images/s{title} in {precision}": images / seconds,
        f"peak memory GB{title} in {precision}": memory,
    }


def large_samples(recipe: DetectorRecipe, count: int) -> list[Sample]:
    """Return images of noise at the recipe's mean size, with seven objects each like COCO's.

    Their sides are 3 to 4, as those of most photographs.
    """
    generator = torch.Generator().manual_seed(9)
    height = round(sum(recipe.train_short_px) / len(recipe.train_short_px))
    width = min(recipe.long_px, round(height * 4 / 3))
    samples = []
    for _ in range(count):
        centers = torch.rand(7, 2, generator=generator) * torch.tensor([width, height])
        halves = height * (0.02 + 0.2 * torch.rand(7, 2, generator=generator))
        most = torch.tensor([width, height, width, height])
        boxes = torch.cat([centers - halves, centers + halves], dim=1).clamp_min(0).min(most)
        rows = [tuple(row) for row in boxes.tolist()]
        image = torch.randint(256, (3, height, width), dtype=torch.uint8, generator=generator)
        samples.append(
            Sample(
                image=image,
                boxes=boxes,
                classes=torch.arange(7),
                polygons=tuple(outlines(row) for row in rows),
                keypoints=torch.stack([keypoints(row, generator) for row in rows]),
            )
        )
    return samples
