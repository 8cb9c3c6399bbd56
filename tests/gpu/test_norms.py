"""Batch norms over several processes against plain batch norm over the whole batch in one."""

import torch
from torch import Tensor, nn

from tests.gpu.findings import Findings, relative_difference, roundings
from tests.gpu.launched import launch
from tests.gpu.shared_norms import CHANNELS, IMAGES_EACH, SIDE, compute, kinds_on
from tests.gpu.started import Place
from transfer.running.stages import load_stage


def test_norms_over_processes(place: Place, findings: Findings) -> None:
    count = launch("tests.gpu.shared_norms", place.device, place.folder)
    for kind in kinds_on(place.device.type):
        shares = [load_stage(place.folder / f"{kind}-{rank}.stage") for rank in range(count)]
        compare(kind, [share for share in shares if share is not None], findings)


def compare(kind: str, shares: list[dict[str, Tensor]], findings: Findings) -> None:
    """Compare the shares of all processes with one process; float64, up to sums in other order.

    A share: outputs and input gradients (n, C, H, W), gradients of weight and bias (C,).
    """
    expected = compute(nn.BatchNorm2d(CHANNELS).double(), range(len(shares)), torch.device("cpu"))
    # sums over all values, then a difference of their squares
    bound = roundings(torch.float64, operations=300)
    for name in ("outputs", "input gradients"):
        found = torch.cat([share[name] for share in shares])
        findings.add(f"{kind}: {name}", relative_difference(found, expected[name]), bound)
    for name in ("weight gradient", "bias gradient"):
        found = torch.stack([share[name] for share in shares]).sum(dim=0)
        findings.add(f"{kind}: {name}", relative_difference(found, expected[name]), bound)
    values = len(shares) * IMAGES_EACH * SIDE**2
    # the naive norm's running variance is biased
    factor = (values - 1) / values if kind == "naiveSyncBN" else 1.0
    momentum = 0.1
    variance = 1 - momentum + factor * (expected["running variance"] - (1 - momentum))
    for rank, share in enumerate(shares):
        mean = relative_difference(share["running mean"], expected["running mean"])
        findings.add(f"{kind}: running mean of process {rank}", mean, bound)
        apart = relative_difference(share["running variance"], variance)
        findings.add(f"{kind}: running variance of process {rank}", apart, bound)
