"""The kinds of pattern differ in structure, not in color."""

import numpy as np
from PIL import Image

from transfer.datasets.synthetic.patterns import paint


def test_a_kind_looks_more_like_itself_than_like_others() -> None:
    """The strongest frequencies are a simple measure of structure that color does not enter."""
    rng = np.random.default_rng(0)
    spectra = np.array([[_spectrum(k, rng) for _ in range(40)] for k in (0, 2, 16)])
    centers, tested = spectra[:, :20].mean(axis=1), spectra[:, 20:]
    distances = np.linalg.norm(tested[:, :, None] - centers, axis=-1)
    hits = distances.argmin(axis=-1) == np.arange(3)[:, None]
    assert hits.mean() > 0.7


def _spectrum(kind: int, rng: np.random.Generator) -> np.ndarray:
    gray = np.asarray(Image.fromarray(paint(kind, (64, 64), rng)).convert("L"), dtype=np.float64)
    amplitude = np.abs(np.fft.rfft2(gray - gray.mean()))[:, :16]
    coarse = amplitude.reshape(16, 4, 4, 4).mean(axis=(1, 3)).ravel()
    return np.asarray(coarse / np.linalg.norm(coarse))
