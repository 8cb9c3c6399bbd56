"""Notes on what operations would do on CUDA: waits, half precision, collectives.

budget.yaml lists the allowed waits. Only pinned memory is copied without a wait.
"""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
import yaml
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.fake_cuda.kernels import answer_read, run_without_kernel

ROOT = f"{Path(__file__).parents[2]}/"
ROOMS = (f"{ROOT}pretrain/", f"{ROOT}transfer/")
LAYERS = ("/torch/nn/modules/conv.py", "/torch/nn/modules/linear.py")
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "convolution"}
SENSITIVE = {"logsumexp", "logaddexp", "_log_softmax", "_softmax", "var", "std", "exp", "log"}
FACTORIZATIONS = {
    *("linalg_cholesky_ex", "linalg_inv_ex", "linalg_solve_triangular"),
    *("_linalg_eigh", "_linalg_svd", "_linalg_solve_ex"),
}
OF_FEW_NUMBERS = ("pretrain/methods/lorac.py", "autograd")
"""Factors matrices of a few rows.

float64 takes a GPU up to 64 times as long as float32. Autograd has the type of its forward pass.
"""
HALF = (torch.bfloat16, torch.float16)
READS = {
    "_local_scalar_dense": "read of a number",
    "equal": "comparison",
    "nonzero": "nonzero",
    "masked_select": "mask",
    "_unique2": "unique",
    "bincount": "bincount",
    "repeat_interleave": "repeat",
    "allclose": "comparison",
    "multinomial": "check of weights",
    # these look whether the solver has failed; the first does it for all that is not named here
    "_linalg_check_errors": "factorization",
    "_linalg_eigh": "factorization",
    "_linalg_svd": "factorization",
    "barrier_": "barrier",
    "nms": "suppression",
}
"""Operations during which the host waits for a value from the device."""


_storages: dict[int, torch.UntypedStorage] = {}
"""Pinned storages by address.

They are kept, so that addresses are not reused.
"""


def mark_pinned(tensor: Tensor) -> Tensor:
    """Mark a tensor and its views as pinned memory; return it."""
    storage = tensor.untyped_storage()
    _storages[storage._cdata] = storage
    return tensor


def is_pinned(tensor: Tensor) -> bool:
    """Return whether a tensor or its base was marked."""
    return tensor.untyped_storage()._cdata in _storages


def pinned_copy(tensor: Tensor) -> Tensor:
    """Return a pinned copy, like Tensor.pin_memory.

    The copy of a tensor with data keeps its data.
    """
    with unset_fake_temporarily():
        return mark_pinned(tensor.clone())


busy: list[torch.UntypedStorage] = []
"""Pinned memory that copies may still read, so it is not reused."""


def forget_pinned() -> None:
    """Release all pinned memory."""
    _storages.clear()
    busy.clear()


INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}


class Wait(NamedTuple):
    """A location where the host waits for the device, and the reason."""

    location: str
    """File and function."""
    kind: str


class Watch(TorchDispatchMode):
    """Recorder of the waits and faults of all operations on CUDA tensors.

    It also returns the values that they read.

    `true`: the value of each condition that is read from the device.
    """

    def __init__(self, *, true: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.true = true
        self.waits: Counter[Wait] = Counter()
        self.faults: list[str] = []
        self.num_sync_norms = 0
        """Forward passes of nn.SyncBatchNorm in training."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, and note its effects on a GPU."""
        kwargs = kwargs or {}
        library, _, name = func._schema.name.partition("::")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if library == "c10d":
            self._check_collective(name, tensors)
        elif _is_host_work(tensors, kwargs):
            pinned = kwargs.pop("pin_memory", False)
            self._check_idle(func, tensors)
            with unset_fake_temporarily():
                created = func(*args, **kwargs)
            return mark_pinned(created) if pinned else created
        cuda = [tensor for tensor in tensors if tensor.device.type == "cuda"]
        if cuda:
            self._note_reads(name, args)
            self._check_precision(name, cuda)
            self.num_sync_norms += name == "batch_norm_stats"
        result = answer_read(name, args, true=self.true) if cuda else None
        if result is None:
            result = run_without_kernel(func, name, args, kwargs) if cuda else func(*args, **kwargs)
        self._note_copies(name, args, kwargs, result)
        return result

    def _note(self, kind: str) -> None:
        self.waits[Wait(location(), kind)] += 1

    def _note_reads(self, name: str, args: Any) -> None:
        if name in READS:
            self._note(READS[name])
        # a number is put by a masked fill
        if name in INDEXING and not (len(args) > 2 and args[2].device.type == "cpu"):
            for index in args[1]:
                if index is not None and index.dtype in (torch.bool, torch.uint8):
                    self._note("mask")
                elif index is not None and index.device.type == "cpu":
                    self._note("copy to the device")

    def _note_copies(self, name: str, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """Note copies between host and device that the host waits for."""
        if name == "_to_copy":
            pairs, blocking = [(args[0], result)], not kwargs.get("non_blocking", False)
        elif name == "copy_":
            pairs, blocking = [(args[1], args[0])], not (kwargs or (len(args) > 2 and args[2]))
        elif name == "_foreach_copy_":
            pairs, blocking = list(zip(args[1], args[0], strict=True)), True
        else:
            return
        for source, target in pairs:
            devices = source.device.type, target.device.type
            if devices == ("cpu", "cuda") and not blocking:
                busy.append(source.untyped_storage())
            if devices == ("cpu", "cuda") and (blocking or not is_pinned(source)):
                self._note(
                    "copy to the device" if blocking else "copy of memory that is not pinned"
                )
            elif blocking and devices == ("cuda", "cpu"):
                self._note("copy from the device")

    def _check_idle(self, func: Any, tensors: list[Tensor]) -> None:
        """Note a fault where memory changes during a copy to the device."""
        reading = {storage._cdata for storage in busy}
        if func._schema.is_mutable and tensors[0].untyped_storage()._cdata in reading:
            self.faults.append(f"write to memory that a copy reads in {location()}")

    def _check_precision(self, name: str, cuda: list[Tensor]) -> None:
        """Note a fault where half precision is used outside network layers."""
        doubles = name in PRODUCTS | SENSITIVE and any(t.dtype == torch.float64 for t in cuda)
        if doubles and not (caller := location()).startswith(OF_FEW_NUMBERS):
            self.faults.append(f"{name} in torch.float64 in {caller}")
        if caller_in_half := half_precision(name, cuda):
            self.faults.append(f"{name} in {cuda[0].dtype} in {caller_in_half}")

    def _check_collective(self, name: str, tensors: list[Tensor]) -> None:
        for tensor in tensors:
            if tensor.device.type != "cuda":
                self.faults.append(f"{name} of a tensor on {tensor.device} in {location()}")
            if not tensor.is_contiguous():
                self.faults.append(f"{name} of a tensor that is not contiguous in {location()}")


def _is_host_work(tensors: list[Tensor], kwargs: dict[str, Any]) -> bool:
    """Return whether an operation only involves tensors with data.

    These keep their data.
    """
    target = kwargs.get("device")
    on_host = target is None or torch.device(target).type == "cpu"
    return on_host and not any(isinstance(tensor, FakeTensor) for tensor in tensors)


LAYER = "a layer of torch"
AUTOGRAD = "autograd"
SYNC_NORM = "nn.SyncBatchNorm"


def location() -> str:
    """Return the project's innermost file and function.

    In torch's own calls, return the layer or autograd.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(ROOMS):
            return f"{code.co_filename.removeprefix(ROOT)} {code.co_qualname}"
        if code.co_filename.endswith("/torch/nn/modules/_functions.py"):
            return SYNC_NORM
        if code.co_filename.endswith(LAYERS):
            return LAYER
        if code.co_filename.endswith("/fake_cuda/graph.py"):
            return AUTOGRAD
        frame = frame.f_back
    return "elsewhere"


def half_precision(name: str, tensors: list[Tensor]) -> str:
    """Return the location of a half-precision operation outside network layers, or ""."""
    if name not in PRODUCTS | SENSITIVE | FACTORIZATIONS or not any(
        tensor.dtype in HALF for tensor in tensors
    ):
        return ""
    caller = location()
    return "" if caller in (LAYER, AUTOGRAD) else caller


BUDGET = yaml.safe_load(Path(__file__).with_name("budget.yaml").read_text())
"""Allowed waits, by the name of the measurement."""


def allowed_waits(measured: str, case: str = "", *, num_passes: int = 0) -> Counter[Wait]:
    """Return a case's waits, with `num_passes` through layers that always wait."""
    allowed: Counter[Wait] = Counter()
    for entry in BUDGET.get(measured, []):
        waits = entry.get("waits", 0)
        number = waits.get(case, 0) if isinstance(waits, dict) else waits
        number += entry.get("of_each_pass", 0) * num_passes
        if number:
            allowed[Wait(entry["place"], entry["kind"])] += number
    return allowed
