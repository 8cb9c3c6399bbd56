"""A ResNet-18 in every file format, and ways to damage the file.

If a format allows it, each convolution repeats one stored value, so that a file has 60 kB.
"""

import argparse
import io
import os
import pickle
import random
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_safetensors
from torch import Tensor

from transfer.encoders.architectures import tensor_shapes
from transfer.encoders.naming import is_optional

Weights = dict[str, Tensor]

REFUSED = frozenset({"refused"})
EQUAL = frozenset({"equal"})
NOTICED = REFUSED | EQUAL
"""Outcomes of damage to bytes that a checksum covers or nobody reads."""
UNNOTICED = NOTICED | {"changed"}
"""Ends of damage to a format without a checksum."""


@dataclass(frozen=True)
class Damaged:
    """A damaged file and the ends that are right for it."""

    write: Callable[[Path], object]
    expected: frozenset[str]


Kind = Callable[[random.Random, Path], Damaged]
"""Function that damages by dice.

The path is where a payload would leave its mark.
"""


@cache
def base_weights() -> Weights:
    """Return the weights in float16: random norms, and a value per convolution."""
    dice = torch.Generator().manual_seed(0)
    weights: Weights = {}
    for location, (name, shape) in enumerate(tensor_shapes("resnet18", "imagenet").items()):
        if is_optional(name):
            weights[name] = torch.tensor(7)
        elif len(shape) == 4:
            weights[name] = torch.full((1,), 0.001 * (location + 1)).half().expand(shape)
        else:
            weights[name] = (torch.rand(shape, generator=dice) + 0.5).half()
    return weights


def zip_bytes(content: object, protocol: int = 2) -> bytes:
    """Return a torch zip file."""
    file = io.BytesIO()
    torch.save(content, file, pickle_protocol=protocol)
    return file.getvalue()


def legacy_bytes(content: object, protocol: int = 2) -> bytes:
    """Return a torch file as torch before 1.6 wrote it."""
    file = io.BytesIO()
    torch.save(content, file, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    return file.getvalue()


def archive(entries: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip archive with these entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return buffer.getvalue()


@cache
def whole_file(form: str) -> bytes:
    """Return the undamaged file of a format."""
    weights = base_weights()
    match form:
        case "zip":
            return zip_bytes({"state_dict": weights, "epoch": 3})
        case "legacy":
            return legacy_bytes({"state_dict": weights, "epoch": 3})
        case "safetensors":
            return bytes(save_safetensors({n: t.contiguous() for n, t in weights.items()}))
    return pickle.dumps({name: tensor.numpy() for name, tensor in weights.items()}, protocol=2)


def _written(content: bytes, expected: frozenset[str]) -> Damaged:
    return Damaged(lambda path: path.write_bytes(content), expected)


def _ends(form: str) -> frozenset[str]:
    return NOTICED if form == "zip" else UNNOTICED


def truncated(form: str, dice: random.Random, _: Path) -> Damaged:
    """Cut the file at a random byte."""
    whole = whole_file(form)
    return _written(whole[: dice.randrange(len(whole))], REFUSED)


def flipped(form: str, dice: random.Random, _: Path) -> Damaged:
    """Flip a bit.

    Half of the time among the first and last bytes, which hold the structure.
    """
    content = bytearray(whole_file(form))
    reach = len(content) if dice.random() < 0.5 else 9000
    location = dice.choice((1, -1)) * dice.randrange(1, reach)
    content[location] ^= 1 << dice.randrange(8)
    return _written(bytes(content), _ends(form))


def zeroed(form: str, dice: random.Random, _: Path) -> Damaged:
    """Fill a block of the file with zeros, as a crash does."""
    content = bytearray(whole_file(form))
    start = dice.randrange(len(content) if dice.random() < 0.5 else 9000)
    end = min(start + dice.choice((16, 512, 4096)), len(content))
    content[start:end] = bytes(end - start)
    return _written(bytes(content), _ends(form))


Change = Callable[[random.Random, Weights, str], object]
"""Function that changes weights by dice.

It gets the name of a tensor of the network.
"""


def changed(change: Change, expected: frozenset[str], dice: random.Random, _: Path) -> Damaged:
    """Return a file of changed weights in any format."""
    weights = dict(base_weights())
    change(dice, weights, dice.choice([name for name in weights if not is_optional(name)]))
    save = dice.choice((zip_bytes, legacy_bytes, lambda tree: pickle.dumps(tree, protocol=2)))
    return _written(save({"state_dict": weights, "epoch": 3}), expected)


def renamed(dice: random.Random, weights: Weights, name: str) -> None:
    weights[name + dice.choice(("s", ".1", "_orig", "\x00", " "))] = weights.pop(name)


def reshaped(dice: random.Random, weights: Weights, name: str) -> None:
    """Give a tensor another shape with the same values."""
    tensor = weights[name]
    flat = dice.random() < 0.5 and tensor.ndim > 1
    weights[name] = tensor.flatten()[:100] if flat else tensor[None]


def duplicated(dice: random.Random, weights: Weights, name: str) -> None:
    """Store a tensor twice, under a second name or the same name."""
    outer, _, inner = name.partition(".")
    if dice.random() < 0.5:
        weights[outer] = {inner: weights[name]}  # type: ignore[assignment]
    else:
        weights[f"layer5.{name}"] = weights[name]


def retyped(
    dtypes: tuple[torch.dtype, ...], dice: random.Random, weights: Weights, name: str
) -> None:
    """Store a tensor in another type."""
    small, dtype = weights[name], dice.choice(dtypes)
    first = small.flatten()[:1].to(dtype)
    weights[name] = first.expand(small.shape) if small.ndim > 1 else small.to(dtype)


def not_finite(dice: random.Random, weights: Weights, name: str) -> None:
    """Put an infinite value into a tensor, everywhere if it repeats one."""
    tensor, value = weights[name], dice.choice((float("nan"), float("inf"), -float("inf")))
    if tensor.ndim == 4:
        weights[name] = torch.full((1,), value).half().expand(tensor.shape)
    else:
        weights[name] = tensor.clone()
        weights[name][dice.randrange(len(tensor))] = value


FLOATS = torch.float32, torch.float64
NO_WEIGHTS = torch.int8, torch.int64, torch.uint8, torch.bool, torch.complex64
CHANGES: dict[str, tuple[Change, frozenset[str]]] = {
    "dropped tensor": (lambda dice, weights, name: weights.pop(name), REFUSED),
    "renamed tensor": (renamed, REFUSED),
    "reshaped tensor": (reshaped, REFUSED),
    "duplicated tensor": (duplicated, REFUSED),
    "other float type": (partial(retyped, FLOATS), EQUAL),
    "type that holds no weights": (partial(retyped, NO_WEIGHTS), REFUSED),
    "NaN or infinity": (not_finite, REFUSED),
    "huge repeated tensor": (
        lambda dice, weights, name: weights.update({name: torch.zeros(1).expand(10**12)}),
        REFUSED,
    ),
}


class Call:
    """An object that calls a function when Python unpickles it."""

    def __init__(self, function: Callable[..., object], *args: object) -> None:
        self.reduced = function, args

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.reduced


def payload(dice: random.Random, marker: Path) -> Damaged:
    """Hide a call of Python beside the weights, in any protocol."""
    python = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    calls = (os.system, f"touch {marker}"), (subprocess.call, ["touch", str(marker)])
    hidden: Any = Call(*dice.choice((*calls, (eval, python), (exec, python))))
    hidden = dice.choice((hidden, [hidden], argparse.Namespace(hidden=hidden)))
    tree: Any = {"state_dict": dict(base_weights())}
    location = dice.choice(("beside", "among", "instead", "key"))
    if location == "beside":
        tree["args"] = hidden
    elif location == "instead":
        tree["state_dict"]["conv1.weight"] = hidden
    elif location == "among":
        tree["state_dict"]["extra"] = hidden
    else:
        tree = (tree, hidden)
    save = dice.choice((zip_bytes, legacy_bytes, pickle.dumps))
    protocol = dice.randrange(0 if save is pickle.dumps else 2, 6)
    return _written(save(tree, protocol), REFUSED)


def foreign_object(dice: random.Random, _: Path) -> Damaged:
    """Store an object of a class that only the file's author has."""
    name = dice.choice(("Args", "Config", "Trainer")).encode()
    package = dice.choice((b"__main__", b"main_moco", b"utils.options"))
    tree = pickle.dumps(base_weights(), protocol=2)
    # a dict of both: the object is made by its class, and gets a state
    foreign = b"c" + package + b"\n" + name + b"\n)\x81}X\x04\x00\x00\x00archX\x01\x00\x00\x00rsb"
    start = b"\x80\x02}(X\x04\x00\x00\x00args" + foreign + b"X\x03\x00\x00\x00net"
    return _written(start + tree[2:-1] + b"u.", EQUAL)


FORMATS = ("zip", "legacy", "safetensors", "NumPy pickle")
KINDS: dict[str, Kind] = {
    **{
        f"{name}, {form}": partial(make, form)
        for name, make in (("truncated", truncated), ("flipped bit", flipped), ("zeroed", zeroed))
        for form in FORMATS
    },
    **{name: partial(changed, *change) for name, change in CHANGES.items()},
    "hidden call": payload,
    "object of an unknown class": foreign_object,
}
