import pytest
import torch

from pretrain.parts.sync_bn import upload


def test_rows_of_the_cpu_stay_themselves() -> None:
    rows = torch.arange(3)
    assert upload(rows, torch.device("cpu")) is rows


@pytest.mark.gpu
def test_rows_arrive_on_a_gpu() -> None:
    rows = torch.arange(3)
    assert upload(rows, torch.device("cuda")).tolist() == [0, 1, 2]
