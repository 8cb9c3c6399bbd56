"""View statistics equal torch.linalg; views depend on seed and image."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from pretrain.running import stop
from tests.rounding import assert_equal_up_to_rounding
from transfer.datasets.images import ImageArrays, Images, encode_names
from transfer.encoders.encoder import Encoder
from transfer.frozen.random_views import RandomViews, statistics_of_views, view_statistics
from transfer.frozen.transforms import ViewSettings

SETTINGS = ViewSettings(num_views=4, size_px=16)


@pytest.fixture
def images() -> Images:
    """Ten images of noise, of 20 px."""
    pixels = np.random.default_rng(0).integers(256, size=(10, 20, 20, 3), dtype=np.uint8)
    source = ImageArrays(pixels, encode_names([*"0123456789"]))
    return Images(source, np.zeros(10, np.int64), ("noise",))


@pytest.mark.parametrize("dim", [3, 8, 64])
def test_statistics_equal_torchs_covariance(dim: int) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = normalize(torch.randn(5, 8, dim, dtype=torch.float64, generator=generator), dim=-1)
    cosine, variance, norm = view_statistics(rows).T
    assert_equal_up_to_rounding(cosine, torch.stack([(r @ r.T).mean() for r in rows]))
    covariances = [torch.cov(r.T, correction=0).diagonal().mean() for r in rows]
    assert_equal_up_to_rounding(variance, torch.stack(covariances))
    # the root of an eigenvalue near zero keeps half of its digits
    expected = torch.linalg.svdvals(rows).sum(dim=1)
    torch.testing.assert_close(norm, expected, atol=8 * 1e-7, rtol=0)


def test_views_depend_on_seed_and_index(images: Images) -> None:
    views, image = RandomViews(SETTINGS), images[0][0]
    torch.manual_seed(5)
    first = views(image, 0, 3)
    assert first.shape == (4, 3, 16, 16)
    assert not torch.equal(first[0], first[1])
    torch.manual_seed(6)
    assert torch.equal(first, views(image, 0, 3))
    assert not torch.equal(first, views(image, 1, 3))
    assert not torch.equal(first, views(image, 0, 4))


def test_a_view_without_changes_is_the_image(images: Images) -> None:
    still = ViewSettings(
        num_views=1,
        size_px=20,
        crop_area=(1.0, 1.0),
        jitter_probability=0,
        gray_probability=0,
        blur_probability=0,
        flip_probability=0,
    )
    image = images[0][0]
    assert (RandomViews(still)(image, 0, 0)[0].permute(1, 2, 0).numpy() == np.asarray(image)).all()


def test_statistics_stop_on_request(
    images: Images, small_backbone: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "_received_signals", [15])
    with pytest.raises(stop.Stopped):
        statistics_of_views(small_backbone, None, images, range(10), SETTINGS, 0)
