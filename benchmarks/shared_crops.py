"""Compare linear probes of several networks on one stream of random crops with separate streams.

python -m benchmarks.shared_crops FOLDER_OF_CLASSES SIZE_PX. Images are decoded for each crop, as in
a data set that does not fit into memory. All ways take turns in one process, on one thread; times
are CPU times, medians of three rounds.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from pretrain.running.host_memory import image_memory
from transfer.datasets.images import Images, class_names, read_class_folders
from transfer.encoders.encoder import Encoder, InputFormat, random_backbone
from transfer.frozen.classifier import Heads
from transfer.frozen.crops import crop_batches
from transfer.frozen.linear_heads import Pass, train_together
from transfer.frozen.probe_training import ProbeTraining
from transfer.tasks.linear_transfer import RATES

NUM_STEPS, BATCH_SIZE, NUM_NETWORKS, NUM_ROUNDS = 6, 256, 5, 3


def main(folder: Path, size_px: int) -> None:
    """Print the CPU times of both ways, and whether their classifiers are equal."""
    torch.set_num_threads(1)
    images = read_class_folders(folder, folder, class_names(folder))
    input_format = InputFormat(size_px=size_px)
    networks = [
        random_backbone(arch="resnet18", stem="imagenet", seed=seed, input=input_format)
        for seed in range(NUM_NETWORKS)
    ]
    training = ProbeTraining(
        learning_rates=RATES, steps=NUM_STEPS, batch_size=BATCH_SIZE, crop_px=size_px
    )

    def crops() -> list[Heads]:
        list(crop_batches(images, training, 0, BATCH_SIZE, range(NUM_STEPS)))
        return []

    ways: dict[str, Callable[[], list[Heads]]] = {
        "separate": lambda: trained(networks, images, training, together=False),
        "shared": lambda: trained(networks, images, training, together=True),
        "crops alone": crops,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    results: dict[str, list[Heads]] = {}
    with image_memory(0):
        for _ in range(NUM_ROUNDS):
            for name, way in ways.items():
                start_s = time.process_time()
                results[name] = way()
                times[name].append(time.process_time() - start_s)
    for name, seconds in times.items():
        print(f"{name:12} {median(seconds):6.2f} s  {[round(s, 2) for s in seconds]}")
    print(f"ratio {median(times['separate']) / median(times['shared']):.2f}")
    pairs = zip(results["separate"], results["shared"], strict=True)
    print("equal:", all(torch.equal(a.weight, b.weight) for a, b in pairs))


def trained(
    networks: list[Encoder], images: Images, training: ProbeTraining, *, together: bool
) -> list[Heads]:
    """Train a probe on each network."""
    with tempfile.TemporaryDirectory() as folder:
        passes = [Pass(network, images, training, 0, Path(folder)) for network in networks]
        for group in [passes] if together else [[each] for each in passes]:
            train_together(group)
        return [each.heads for each in passes]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
