"""Networks of users are evaluated, or refused with the expected output."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, dropout
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from transfer import Encoder, evaluate
from transfer.encoders.architectures import BackboneError

SQUARE: dict[str, Any] = {"size_px": 32, "mean": (0.5,) * 3, "std": (0.25,) * 3}
OWN = """
import torch
from torch import nn

INPUT = {"size_px": 32, "mean": (0.5,) * 3, "std": (0.25,) * 3}

def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, 4), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )

def half():
    return network().half()

def wrapped():
    return nn.DataParallel(network())

def meta():
    with torch.device("meta"):
        return network()

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()
    def forward(self, images):
        return self.net(images), images

class Train(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()
    def forward(self, images):
        return nn.functional.batch_norm(self.net(images), None, None, training=True)
"""


def network() -> nn.Sequential:
    """Return a small network with weights of seed 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 8, 4, 4), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        return nn.Sequential(*layers)


class Returns(nn.Module):
    """Passes the features (n, 8) of the small network through a function."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.net, self.change = network(), change

    def forward(self, images: Tensor) -> Any:
        return self.change(self.net(images))


def encoder_of(net: nn.Module, **more: Any) -> Encoder:
    return Encoder.from_module(net, **SQUARE, **more)


def images() -> Tensor:
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def features_of(net: nn.Module, **more: Any) -> Tensor:
    """Return the features of three images by the encoder of a network."""
    with torch.no_grad():
        features: Tensor = encoder_of(net, **more).network()(images())
    return features


def model_output(features: Tensor) -> Any:
    outputs = pytest.importorskip("transformers.modeling_outputs", reason="needs transformers")
    return outputs.BaseModelOutputWithPooling(last_hidden_state=features[:, None])


OUTPUTS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "tuple": (lambda f: (f, f), r"a value of type tuple .*\(n, C\)"),
    "list": (lambda f: [f], "a value of type list"),
    "dict": (lambda f: {"feat": f}, "a value of type dict"),
    "ModelOutput": (model_output, "a value of type BaseModelOutputWithPooling"),
    "object": (lambda f: SimpleNamespace(x=f), "a value of type SimpleNamespace"),
    "None": (lambda f: None, "a value of type NoneType"),
    "array": (lambda f: f.numpy(), "a value of type ndarray"),
    "tokens": (lambda f: f[:, None], r"\(2, 1, 8\) of float32 .* pass pool='mean'"),
    "maps": (lambda f: f[..., None, None], r"\(2, 8, 1, 1\) of float32 .* pass pool='mean'"),
    "no batch": (lambda f: f.flatten(), r"\(16,\) of float32 for images \(2, 3, 32"),
    "a number": (lambda f: f.sum(), r"a tensor \(\) of float32 for images \(2, 3, 32"),
    "one row": (lambda f: f.sum(dim=0, keepdim=True), r"\(1, 8\) of float32 for images \(2, 3, 32"),
    "two views": (lambda f: torch.cat([f, f]), r"\(4, 8\) of float32 for images \(2, 3, 32"),
    "zero width": (lambda f: f[:, :0], r"\(2, 0\) of float32"),
    "integers": (lambda f: f.argsort(dim=1), r"\(2, 8\) of int64 .*a tensor of floats"),
    "complex": (lambda f: torch.complex(f, f), r"\(2, 8\) of complex64"),
    "NaN": (lambda f: f / 0 * 0, "16 of 16 features on fixed images are not finite"),
    "infinite": (lambda f: f.exp() * 1e38 * 1e10, "16 of 16 .* not finite"),
    "squeezed": (torch.squeeze, r"\(8,\) of float32 for images \(1, 3, 32"),
    "constant": (lambda f: f * 0 + 1, "do not depend on the image"),
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_output_of_another_kind_is_named(what: str) -> None:
    change, expected = OUTPUTS[what]
    with pytest.raises(BackboneError, match=expected):
        encoder_of(Returns(change))


def test_pooling_of_features_is_refused() -> None:
    with pytest.raises(BackboneError, match=r"\(2, 8\) of float32 .*tokens.*leave out `pool`"):
        encoder_of(network(), pool="mean")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precision_is_cast_to_float32(dtype: torch.dtype) -> None:
    rounded = network().to(dtype)
    encoder = encoder_of(rounded)
    assert encoder.sha256 == encoder_of(network().to(dtype).float()).sha256
    assert next(rounded.parameters()).dtype == dtype  # the caller's network is unchanged


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_features_of_another_precision_are_accepted(dtype: torch.dtype) -> None:
    assert encoder_of(Returns(lambda features: features.to(dtype))).width == 8


def compiled(net: nn.Module) -> Any:
    return torch.compile(net)


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "DataParallel": nn.DataParallel,
    "both": lambda net: nn.DataParallel(compiled(net)),
}


@pytest.mark.parametrize("wrapper", ["DataParallel", pytest.param("both", marks=pytest.mark.slow)])
def test_wrapper_is_not_part_of_the_encoder(wrapper: str) -> None:
    wrap, net = WRAPPERS[wrapper], network()
    assert encoder_of(wrap(net)).sha256 == encoder_of(net).sha256


def test_network_of_distributed_training_is_unwrapped(tmp_path: Path) -> None:
    distributed: Any = torch.distributed
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        net = nn.parallel.DistributedDataParallel(network())
        assert encoder_of(net).sha256 == encoder_of(network()).sha256
    finally:
        distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*(weight_norm|spectral_norm|TorchScript|torch.jit).*")
@pytest.mark.parametrize(
    "norm",
    [weight_norm, spectral_norm, parametrizations.weight_norm, parametrizations.spectral_norm],
)
def test_computed_weights_are_evaluated(norm: Callable[[nn.Module], nn.Module]) -> None:
    net = network()
    norm(net[0])
    net(images()).sum().backward()  # the caller has a graph
    result, again = features_of(net), features_of(net)
    with torch.no_grad():
        torch.testing.assert_close(result, net.eval()(images()))
    assert torch.equal(result, again)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("how", ["trace", "script", "freeze"])
def test_torchscript_is_evaluated(how: str, small_data: Path, tmp_path: Path) -> None:
    net = network().eval()
    scripted = torch.jit.trace(net, images()) if how == "trace" else torch.jit.script(net)
    compiled = torch.jit.freeze(scripted) if how == "freeze" else scripted
    settings: dict[str, Any] = {"data": small_data, "schedule": "smoke", "runs": tmp_path}
    result = evaluate(encoder_of(compiled), "cifar10_knn", **settings)
    assert result.metrics == evaluate(encoder_of(net), "cifar10_knn", **settings).metrics


@pytest.mark.filterwarnings("ignore")
def test_network_traced_in_training_mode_is_refused() -> None:
    with pytest.raises(BackboneError, match="depend on the other images of its batch"):
        encoder_of(torch.jit.trace(network(), images(), check_trace=False))


@pytest.mark.parametrize("task", ["cifar10_knn", "transfer_linear/cifar10"])
def test_network_without_parameters_is_evaluated(
    task: str, small_data: Path, tmp_path: Path
) -> None:
    pixels = nn.Sequential(nn.AvgPool2d(8), nn.Flatten())
    result = evaluate(
        encoder_of(pixels), task, data=small_data, schedule="smoke", runs=tmp_path / "runs"
    )
    assert result.metrics["top1"] > 10


class Frozen(nn.Module):
    """A network whose forward function has no gradients, with an integer parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.order = nn.Parameter(torch.arange(8), requires_grad=False)
        self.net = network()

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.net(x)
        return features[:, self.order]


def test_forward_function_without_gradients_is_evaluated(small_data: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data": small_data, "schedule": "smoke", "runs": tmp_path}
    result = evaluate(encoder_of(Frozen()), "cifar10_knn", **settings)
    assert result.metrics == evaluate(encoder_of(network()), "cifar10_knn", **settings).metrics


def test_forward_hooks_are_part_of_the_network() -> None:
    net = network()
    net[3].register_forward_hook(lambda *call: 2 * call[2])
    assert torch.equal(features_of(net), 2 * features_of(network()))


def test_synchronized_norm_is_evaluated() -> None:
    net = nn.SyncBatchNorm.convert_sync_batchnorm(network())
    torch.testing.assert_close(features_of(net), features_of(network()))


class Locked(nn.Module):
    """A module that cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.lock = network(), threading.Lock()


def lazy() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(4))


def on_meta() -> nn.Module:
    return network().to("meta")


class WithState(nn.Linear):
    """A layer whose state is not a tensor, as in quantized layers."""

    def get_extra_state(self) -> dict[str, float]:
        return {"scale": 0.5}


UNUSABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "no module": (lambda: torch.relu, "a value of type builtin.*expected a torch.nn.Module"),
    "a file's content": (lambda: network().state_dict(), "OrderedDict; expected a torch.nn"),
    "lazy": (lazy, "1.weight of Sequential has no values"),
    "meta": (on_meta, "0.weight of Sequential has no values"),
    "quantized": (
        lambda: nn.Sequential(nn.Flatten(), WithState(3072, 4)),
        "1._extra_state of Sequential is .*dict.*before quantization",
    ),
    "locked": (Locked, "Locked cannot be copied .*lock"),
    "other size": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(9, 4)), r"fails on.*\(2, 3, 32"),
}


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("what", UNUSABLE)
def test_network_without_values_or_copy_is_refused(what: str) -> None:
    make, expected = UNUSABLE[what]
    with pytest.raises(BackboneError, match=expected):
        encoder_of(make())


class Shares(nn.Module):
    """Changes features (n, 8) by something else than the image."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.change = network(), change

    def forward(self, x: Tensor) -> Tensor:
        return self.change(self.net(x))


def normalized(features: Tensor) -> Tensor:
    return batch_norm(torch.cat([features, 0 * features]), None, None, training=True)[
        : len(features)
    ]


class Calls(nn.Module):
    """A layer that adds its number of calls to the features."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        calls = self.get_buffer("calls")
        calls += 1
        features: Tensor = self.net(x)
        return features + calls


IN_TRAINING = nn.BatchNorm1d(8, affine=False, track_running_stats=False)
NOT_ALONE: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "norm without statistics": (
        lambda: nn.Sequential(*network(), IN_TRAINING),
        "depend on the other images .*more than 1 value.*running statistics",
    ),
    "norm of maps without statistics": (
        lambda: nn.Sequential(
            network()[0], nn.BatchNorm2d(8, track_running_stats=False), nn.Flatten()
        ),
        "depend on the other images .*running statistics",
    ),
    "functional norm": (lambda: Shares(normalized), "depend on the other images"),
    "the batch's mean": (lambda: Shares(lambda f: f - f.mean(0) / 2), "depend on the other"),
    "the first image": (lambda: Shares(lambda f: f + f[:1]), "depend on the other"),
    "the last image": (lambda: Shares(lambda f: f + f[-1:]), "depend on the other"),
    "dropout": (lambda: Shares(lambda f: dropout(f, 0.5)), "call to call.*dropout"),
    "noise": (lambda: Shares(lambda f: f + 0.01 * torch.randn_like(f)), "call to call"),
    "a counter": (Calls, "call to call"),
}


@pytest.mark.parametrize("what", NOT_ALONE)
def test_features_that_depend_on_more_than_the_image_are_refused(what: str) -> None:
    make, expected = NOT_ALONE[what]
    with pytest.raises(BackboneError, match=expected):
        encoder_of(make())


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e30])
def test_scale_of_features_does_not_matter(scale: float) -> None:
    assert encoder_of(Shares(lambda features: features * scale)).width == 8
    with pytest.raises(BackboneError, match="depend on the other images"):
        encoder_of(Shares(lambda features: scale * (features - features.mean(0) / 2)))


def test_deep_random_networks_differ_by_rounding_alone() -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(60) for layer in (nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU())]
    for layer in layers[::2]:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")  # type: ignore[arg-type]
    net = nn.Sequential(nn.Conv2d(3, 16, 3, 2), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert encoder_of(net).width == 16


@pytest.fixture
def users_file(tmp_path: Path) -> tuple[Path, Path]:
    """A file with several functions, and a checkpoint of their network."""
    code, weights = tmp_path / "mine.py", tmp_path / "mine.pth"
    code.write_text(OWN)
    torch.save(network().state_dict(), weights)
    return code, weights


@pytest.mark.parametrize("function", ["network", "half", "wrapped"])
def test_users_file_gives_the_features_of_its_network(
    function: str, users_file: tuple[Path, Path]
) -> None:
    code, weights = users_file
    encoder = Encoder.from_file(weights, encoder=f"{code}:{function}")
    with torch.no_grad():
        assert torch.equal(encoder.network()(images()), network().eval()(images()))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("Pair", "type tuple"),
        ("Train", "depend on the other images"),
        ("meta", "0.weight of Sequential has no"),
    ],
)
def test_users_file_is_checked_like_a_module(
    function: str, expected: str, users_file: tuple[Path, Path]
) -> None:
    code, weights = users_file
    tensors = torch.load(weights, weights_only=True)
    if function in ("Pair", "Train"):
        torch.save({f"net.{name}": tensor for name, tensor in tensors.items()}, weights)
    with pytest.raises(BackboneError, match=expected):
        Encoder.from_file(weights, encoder=f"{code}:{function}")
