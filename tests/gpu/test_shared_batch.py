"""Batches that several processes share against one process with the whole batch."""

import torch

from tests.gpu.findings import Findings
from tests.gpu.launched import launch
from tests.gpu.shared_batch import RESULTS, SHARED, results
from tests.gpu.started import Place


def test_processes_that_share_a_batch(place: Place, findings: Findings) -> None:
    number = launch("tests.gpu.shared_batch", place.device, place.folder)
    together = torch.load(place.folder / RESULTS)
    for part in SHARED:
        expected = results(part, place.device, 1, 0, groups=number)
        moved = results(part, place.device, 1, 0, groups=number, changed=True)
        findings.compare(together[part], expected, [moved])
