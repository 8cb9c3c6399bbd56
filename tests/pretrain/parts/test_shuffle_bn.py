import pytest
import torch
from torch import Tensor, nn

from pretrain.parts.sync_bn import shuffled_forward, split_forward


class Recorder(nn.Module):
    """Multiplies by ten and remembers which rows came together."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[list[float]] = []

    def forward(self, images: Tensor) -> Tensor:
        self.groups.append(sorted(images.flatten().tolist()))
        return images * 10


def test_embeddings_come_back_to_their_images() -> None:
    images = torch.arange(12.0)[:, None]
    assert torch.equal(shuffled_forward(Recorder(), images, 1), images * 10)


def test_groups_are_mixed_anew_and_cover_every_image_once() -> None:
    torch.manual_seed(0)
    network = Recorder()
    images = torch.arange(12.0)[:, None]
    for _ in range(2):
        shuffled_forward(network, images, 3)
    first, second = network.groups[:3], network.groups[3:]
    assert sorted(row for group in first for row in group) == images.flatten().tolist()
    assert first != second
    assert first[0] != [0.0, 1.0, 2.0, 3.0]


def test_each_split_has_its_own_batch_statistics() -> None:
    images = torch.randn(8, 4)
    norm = nn.BatchNorm1d(4)
    expected = torch.cat([nn.BatchNorm1d(4)(images[:4]), nn.BatchNorm1d(4)(images[4:])])
    torch.testing.assert_close(split_forward(norm, images, 2), expected)


def test_splits_that_do_not_divide_the_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="8 images do not split into 3 equal groups"):
        split_forward(nn.Identity(), torch.zeros(8, 4), 3)


def test_under_autocast_images_are_gathered_in_the_type_of_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gathered: list[Tensor] = []

    def gather(rows: Tensor) -> Tensor:
        gathered.append(rows)
        return rows

    monkeypatch.setattr("pretrain.parts.sync_bn.gather", gather)
    images, network = torch.randn(4, 3, 8, 8), nn.Conv2d(3, 2, kernel_size=3)
    with torch.autocast("cpu", torch.bfloat16):
        embeddings = shuffled_forward(network, images, 1)
        expected = network(images)
    assert [rows.dtype for rows in gathered] == [torch.bfloat16] * 2
    assert torch.equal(embeddings, expected)
    shuffled_forward(network, images, 1)
    assert gathered[-1].dtype == torch.float32
