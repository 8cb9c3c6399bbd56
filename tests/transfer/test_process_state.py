"""Results and the caller's process state do not affect each other."""

import io
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from torch import nn
from torchvision.models import resnet18

from pretrain.pixels.decoding import decode
from transfer import Encoder, evaluate, knn, linear_probe, load_backbone, svm
from transfer.encoders.opening import open_file
from transfer.encoders.options import EncoderOptions
from transfer.process_state import torch_defaults

ROOT = Path(__file__).parents[2]
INPUT: dict[str, Any] = {"size_px": 32, "mean": (0.5,) * 3, "std": (0.25,) * 3}


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Create new tensors in this type within the block."""
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Multiply float32 matrices in this precision within the block."""
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with so many threads within the block."""
    previous = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


STATES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "float64": lambda: default_dtype(torch.float64),
    "bfloat16": lambda: default_dtype(torch.bfloat16),
    "meta": lambda: torch.device("meta"),
    "matmul": lambda: matmul_precision("medium"),
}


@contextmanager
def together() -> Iterator[None]:
    """All states at the same time."""
    with ExitStack() as stack:
        for state in STATES.values():
            stack.enter_context(state())
        yield


def small_network() -> nn.Module:
    """Return a network of a user with its weights, from a seed."""
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


def features() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return features, labels and test features of three classes."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    train = torch.randn(60, 8, generator=generator) + labels[:, None]
    return train, labels, torch.randn(20, 8, generator=generator) + 1


TRAIN, LABELS, TEST = features()
NETWORK = small_network()
IMAGES = [np.random.default_rng(i).integers(0, 256, (40, 50, 3), np.uint8) for i in range(3)]


def encoder_state(encoder: Any) -> tuple[str, list[float]]:
    """Return the hash of an encoder and the sums of its tensors."""
    return encoder.sha256, [float(t.double().sum()) for t in encoder.state_dict.values()]


FUNCTIONS: dict[str, Callable[[Path, Path], object]] = {
    "knn": lambda *_: knn(TRAIN, LABELS, TEST, num_neighbors=5).tolist(),
    "linear_probe": lambda *_: linear_probe(TRAIN, LABELS, TEST, epochs=3).tolist(),
    "svm": lambda *_: svm(TRAIN, LABELS[:, None] == LABELS[:3], TEST).tolist(),
    "features": lambda *_: Encoder.from_module(NETWORK, **INPUT).features(IMAGES).tolist(),
    "from_module": lambda *_: encoder_state(Encoder.from_module(NETWORK, **INPUT)),
    "with_random_weights": lambda *_: encoder_state(
        Encoder.from_module(NETWORK, **INPUT).with_random_weights()
    ),
    "load_backbone": lambda resnet, _: encoder_state(load_backbone(resnet)),
    "backbone_twin": lambda resnet, _: encoder_state(load_backbone(resnet).with_random_weights()),
    "from_file": lambda _, weights: encoder_state(
        Encoder.from_file(weights, encoder=f"{weights.with_suffix('.py')}:build")
    ),
}


@pytest.fixture
def encoder_file(tmp_path: Path) -> Path:
    """Return weights of a user's network, with its Python file."""
    torch.save(NETWORK.state_dict(), tmp_path / "net.pth")
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        f"INPUT = {INPUT!r}\n"
        "def build():\n"
        "    return nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.BatchNorm2d(16), nn.ReLU(), "
        "nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
    )
    return tmp_path / "net.pth"


@pytest.fixture(scope="module")
def resnet_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint of torchvision's ResNet-18."""
    path = tmp_path_factory.mktemp("resnet") / "resnet18.pth"
    torch.manual_seed(1)
    torch.save(resnet18().state_dict(), path)
    return path


@pytest.mark.parametrize("function", FUNCTIONS)
def test_state_changes_no_result(
    function: str, resnet_file: Path, encoder_file: Path, subtests: pytest.Subtests
) -> None:
    expected = FUNCTIONS[function](resnet_file, encoder_file)
    # reading a file takes a second
    states = {"together": together} if "file" in function or "backbone" in function else STATES
    for name, state in states.items():
        with subtests.test(state=name), state():
            assert FUNCTIONS[function](resnet_file, encoder_file) == expected


@pytest.mark.parametrize("state", STATES)
def test_state_changes_no_evaluation(state: str, small_data: Path, tmp_path: Path) -> None:
    encoder = Encoder.from_module(NETWORK, **INPUT)

    def run(runs: str) -> dict[str, float]:
        settings: dict[str, Any] = {"data": small_data, "schedule": "smoke"}
        return evaluate(encoder, "cifar10_knn", runs=tmp_path / runs, **settings).metrics

    expected = run("alone")
    with STATES[state]():
        assert run("inside") == expected


@pytest.mark.parametrize("state", STATES)
def test_state_is_restored(state: str) -> None:
    def current() -> tuple[object, ...]:
        return (
            torch.is_autocast_enabled("cpu"),
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype(),
            torch.get_default_device(),
            torch.get_float32_matmul_precision(),
        )

    @torch_defaults()
    def fail() -> None:
        assert torch.zeros(1).dtype == torch.float32
        assert torch.zeros(1).device.type == "cpu"
        raise ValueError("inside")

    with STATES[state]():
        previous = current()
        with pytest.raises(ValueError, match="inside"):
            fail()
        assert current() == previous


def test_precision_of_one_backend_is_restored() -> None:
    backend = torch.backends.cuda.matmul
    if not hasattr(backend, "fp32_precision"):
        pytest.skip("this torch has no precision per backend")
    backend.fp32_precision = "tf32"
    try:
        with torch_defaults():
            assert torch.get_float32_matmul_precision() == "highest"
        assert backend.fp32_precision == "tf32"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_random_numbers_of_the_caller_go_on(small_data: Path, tmp_path: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    encoder = Encoder.from_module(NETWORK, **INPUT)
    encoder.with_random_weights()
    evaluate(encoder, "cifar10_knn", data=small_data, schedule="smoke", runs=tmp_path)
    linear_probe(TRAIN, LABELS, TEST, epochs=1)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    "line", ["set_default_dtype(torch.float64)", "set_autocast_enabled('cpu', True)"]
)
def test_settings_of_an_encoder_file_stay_in_it(line: str, encoder_file: Path) -> None:
    source = encoder_file.with_suffix(".py")
    options = EncoderOptions(encoder=f"{source}:build")
    expected = open_file(encoder_file, options)[0].features(IMAGES)
    source.write_text(f"import torch\ntorch.{line}\n{source.read_text()}")
    assert torch.equal(open_file(encoder_file, options)[0].features(IMAGES), expected)
    assert torch.get_default_dtype() == torch.float32
    assert not torch.is_autocast_enabled("cpu")


def test_truncated_images_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training scripts often let Pillow accept them."""
    file = io.BytesIO()
    Image.fromarray(IMAGES[0]).save(file, "png")
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(OSError, match="truncated"), torch_defaults():
        decode(file.getvalue()[:-2000])
    assert ImageFile.LOAD_TRUNCATED_IMAGES


def test_number_of_threads_does_not_change_the_hash() -> None:
    torch.manual_seed(2)
    wide = nn.Sequential(
        nn.Conv2d(3, 256, 3, 2), nn.ReLU(), nn.Conv2d(256, 512, 3), nn.ReLU(),
        nn.Conv2d(512, 2048, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    hashes = set()
    for count in (1, 2, 3):
        with threads(count):
            hashes.add(Encoder.from_module(wide, **INPUT).sha256)
            assert torch.get_num_threads() == count
    assert len(hashes) == 1


RANKS = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from transfer import Encoder, evaluate

dist.init_process_group("gloo")
rank, who, data, runs = dist.get_rank(), *sys.argv[1:4]
torch.manual_seed(0)
layers = [nn.Conv2d(3, 16, 3, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
network = nn.Sequential(*layers, nn.Flatten())
ddp = nn.parallel.DistributedDataParallel(network)
def step():
    ddp(torch.randn(4, 3, 32, 32)).square().mean().backward()
step()
metrics = {}
if rank == 0 or who == "all":
    encoder = Encoder.from_module(ddp, size_px=32, mean=(0.5,) * 3, std=(0.25,) * 3)
    metrics = evaluate(encoder, "cifar10_knn", data=data, schedule="smoke", runs=runs,
                       results=runs + "/results").metrics
if who == "train":
    step()
dist.barrier()
with open(f"{runs}.{rank}", "w") as file:
    print(sorted(metrics), sorted(metrics.values()), file=file)
"""


@pytest.mark.slow
@pytest.mark.parametrize("who", ["first", "train", "all"])
def test_ranks_of_a_training_may_evaluate(who: str, small_data: Path, tmp_path: Path) -> None:
    """Evaluate on rank 0 while rank 1 waits, trains or evaluates."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    runs = tmp_path / "runs"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANKS, who, str(small_data), str(runs)],
            cwd=ROOT,
            env=os.environ | group | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [process.wait(timeout=120) for process in ranks] == [0, 0]
    first, second = ((tmp_path / f"runs.{rank}").read_text() for rank in range(2))
    assert "top1" in first
    assert second == (first if who == "all" else "[] []\n")
