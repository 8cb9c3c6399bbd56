"""Settings of random views as in contrastive pre-training."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """Number and distribution of the views; the defaults are MoCo v2's: arXiv:2003.04297."""

    num_views: int = 32
    """V."""
    size_px: int = 224
    crop_area: tuple[float, float] = (0.2, 1.0)
    """Range of the share of the image's area that a crop has."""
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
    """x of factors from 1 - x to 1 + x of brightness, contrast and saturation; largest shift of the
    hue in turns."""
    jitter_probability: float = 0.8
    gray_probability: float = 0.2
    blur_probability: float = 0.5
    blur_sigma_px: tuple[float, float] = (0.1, 2.0)
    """Range of the Gaussian's standard deviation."""
    flip_probability: float = 0.5
