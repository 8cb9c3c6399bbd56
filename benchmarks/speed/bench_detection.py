"""Speed and memory of both detection engines: a training step of each on the same batch.

    python -m benchmarks.speed.bench_detection

The engines run in one process, in turn, on the GPU if there is one. Without detectron2 only the
torchvision engine is measured. Memory is the GPU's peak over a whole step (weights, gradients,
momentum, activations and buffers), with each engine alone on it. A CPU counts no such peak. There,
it is what the forward pass keeps for the backward pass, each storage once and without the weights.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor

from benchmarks.speed.command import run_benchmark
from transfer.backbone import random_backbone
from transfer.detection import recipe
from transfer.detection.engines import HOW_TO_INSTALL, EngineName, build_detector, is_available
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.sample import Detector, Sample
from transfer.detection.train import sgd
from transfer.finetuning.schedule import learning_rate, set_rate

RECIPES = {
    "coco_det": recipe.COCO_FPN,
    "coco_insseg": recipe.COCO_FPN_MASKS,
    "coco_keypoint": recipe.COCO_FPN_KEYPOINTS,
    "voc0712_det_c4": recipe.VOC_C4,
}
NUM_CLASSES = {"coco_det": 80, "coco_insseg": 80, "coco_keypoint": 1, "voc0712_det_c4": 20}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    arch: str = "resnet50"
    tasks: tuple[str, ...] = ("coco_det", "coco_insseg", "coco_keypoint", "voc0712_det_c4")
    images: int = 1
    height_px: int = 256
    width_px: int = 320
    roi_samples: int = 64
    """Regions per image that the heads are trained on; the recipes' 512 take a CPU minutes."""
    rounds: int = 3
    """Number of timed steps of each engine, after one step that is not timed."""


def batch(settings: Settings, seed: int = 0) -> list[Sample]:
    """Return images of noise with three objects each, which have an outline and keypoints."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.tensor([settings.width_px, settings.height_px] * 2)
    samples = []
    for _ in range(settings.images):
        corners = torch.rand(3, 2, 2, generator=generator).sort(dim=1).values.reshape(3, 4)
        boxes = (corners * 0.6 + torch.tensor([0.0, 0.0, 0.4, 0.4])) * size
        x, y = boxes[:, 0::2].mean(dim=1), boxes[:, 1::2].mean(dim=1)
        points = torch.stack([x, y, torch.full_like(x, 2.0)], dim=1)
        shape = (3, settings.height_px, settings.width_px)
        samples.append(
            Sample(
                image=torch.randint(256, shape, generator=generator, dtype=torch.uint8),
                boxes=boxes,
                classes=torch.zeros(3, dtype=torch.int64),
                polygons=tuple((box[[0, 1, 2, 1, 2, 3, 0, 3]].double().numpy(),) for box in boxes),
                keypoints=points[:, None].repeat(1, 17, 1),
            )
        )
    return samples


def fitting(samples: list[Sample], chosen: DetectorRecipe) -> list[Sample]:
    """Return the samples with only the annotations that the recipe learns from."""
    return [
        replace(
            sample,
            polygons=sample.polygons if chosen.finds == "masks" else None,
            keypoints=sample.keypoints if chosen.finds == "keypoints" else None,
        )
        for sample in samples
    ]


def shortened(task: str, settings: Settings) -> DetectorRecipe:
    """Return the task's recipe with the number of regions of the settings."""
    return replace(RECIPES[task], roi_samples=settings.roi_samples)


@dataclass(frozen=True, kw_only=True)
class Training:
    """Detector at the start of a training, and its optimizer."""

    detector: Detector
    optimizer: torch.optim.SGD


def started(engine: EngineName, task: str, settings: Settings, device: torch.device) -> Training:
    """Return the start of a training, with the network on the device in training mode."""
    torch.manual_seed(0)
    chosen = shortened(task, settings)
    detector = build_detector(
        engine, chosen, arch=settings.arch, num_classes=NUM_CLASSES[task], norm="BN"
    )
    backbone = random_backbone(arch=settings.arch, stem="imagenet", seed=0)
    detector.load_backbone(backbone.state_dict)
    detector.network.to(device).train()
    optimizer = sgd(detector, chosen)
    set_rate(optimizer, learning_rate(chosen, 0))
    return Training(detector=detector, optimizer=optimizer)


def step(training: Training, samples: list[Sample]) -> float:
    """Do one training step; return its time in s."""
    torch.manual_seed(0)  # every step draws the same regions
    wait()
    start = time.perf_counter()
    loss = torch.stack(list(training.detector.network(samples).values())).sum()
    training.optimizer.zero_grad()
    loss.backward()
    training.optimizer.step()
    wait()
    return time.perf_counter() - start


def wait() -> None:
    """Wait until the GPU, if there is one, has done its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_gb(training: Training, samples: list[Sample]) -> float:
    """Return the peak memory of the second step on a GPU in GB; the first allocates momentum."""
    step(training, samples)
    torch.cuda.reset_peak_memory_stats()
    step(training, samples)
    return torch.cuda.max_memory_allocated() / 1e9


def kept_gb(training: Training, samples: list[Sample]) -> float:
    """Return what a forward pass keeps for the backward pass in GB, without the weights."""
    network = training.detector.network
    kept: dict[int, int] = {}
    own = {p.untyped_storage().data_ptr() for p in network.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    torch.manual_seed(0)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        network(samples)
    return sum(kept.values()) / 1e9


def memory(engine: EngineName, task: str, settings: Settings, device: torch.device) -> str:
    """Return in words the memory of an engine that is alone on the device."""
    training = started(engine, task, settings, device)
    samples = fitting(batch(settings), RECIPES[task])
    if device.type == "cuda":
        return f"{peak_gb(training, samples):6.2f} GB at its peak"
    return f"{kept_gb(training, samples):6.2f} GB kept for backward"


def seconds(
    engines: Sequence[EngineName], task: str, settings: Settings, device: torch.device
) -> dict[EngineName, float]:
    """Return the median time of a step of each engine, in s; the engines take turns."""
    samples = fitting(batch(settings), RECIPES[task])
    trainings = {engine: started(engine, task, settings, device) for engine in engines}
    for training in trainings.values():
        step(training, samples)
    rounds = [
        {engine: step(training, samples) for engine, training in trainings.items()}
        for _ in range(settings.rounds)
    ]
    return {engine: median(each[engine] for each in rounds) for engine in engines}


def run(settings: Settings) -> None:
    """Print a line per task and engine."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    engines: tuple[EngineName, ...] = ("detectron2", "torchvision")
    if not is_available():
        engines = ("torchvision",)
        print(f"detectron2 is not installed. {HOW_TO_INSTALL}")
    print(f"{settings.images} x {settings.height_px} x {settings.width_px} px, {settings.arch}")
    for task in settings.tasks:
        # memory first, while no network of `seconds` is on the device
        memories = {engine: memory(engine, task, settings, device) for engine in engines}
        taken = seconds(engines, task, settings, device)
        for engine in engines:
            line = f"{task:<16}{engine:<13}{taken[engine]:7.2f} s per iteration"
            print(f"{line}  {memories[engine]}", flush=True)


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    return run_benchmark(Settings, words, __doc__, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
