"""Images that do not decode during training: counted, recorded, and replaced.

Listing a folder reads only image headers, so a truncated file is found when a step needs its
pixels. With `--tolerated-images`, another image replaces it. The substitute depends only on the
seed and the bad image, so an interrupted and a resumed run train on the same images. The list of
images, its order and its fingerprint do not change.
"""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pretrain.data.images import DataError, DecodeError, TrainingImages
from pretrain.pixels.decoding import open_error
from pretrain.running.atomic_files import explain_write_errors

FILE_NAME = "bad_images.jsonl"
"""File in the run's folder: a line for each bad image.
It contains the image's name and the reason."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BadImages:
    """The bad images of a run, shared by all processes.

    Processes and their workers share them in a file.
    """

    images: TrainingImages
    path: Path
    seed: int
    tolerated: int
    reasons: dict[int, str] = field(default_factory=dict)
    """Index -> reason of each bad image that this process knows."""
    repaired: set[int] = field(default_factory=set)
    """Indices of images that were recorded before a restart but decode now."""

    def add(self, index: int, error: DecodeError) -> None:
        """Record a bad image for all processes of the run."""
        self.reasons[index] = str(error)
        line = json.dumps({"image": self.images.name(index), "reason": str(error)})
        with explain_write_errors(self.path, "--out"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(f"{line}\n")

    def check(self) -> None:
        """Raise DecodeError with all bad images if there are more than tolerated."""
        self.reasons.update(self._recorded())
        if len(self.reasons) + len(self.images.unreadable) > self.tolerated:
            raise DecodeError(self._refusal())

    def check_recorded(self) -> None:
        """Read recorded bad images again.

        Raises DataError if too many are still bad. Repaired images are not bad any more.
        """
        for index in self._recorded():
            try:
                self.images.read(index)
                self.repaired.add(index)
            except DecodeError as error:
                self.reasons[index] = str(error)
        if len(self.reasons) + len(self.images.unreadable) > self.tolerated:
            raise DataError(self._refusal())

    def substitute(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return indices (n,) with known bad images replaced."""
        if not self.reasons:
            return indices
        return np.array([self._substitute(index) for index in indices.tolist()], dtype=np.int64)

    def _substitute(self, index: int) -> int:
        if index not in self.reasons:
            return index
        if len(self.reasons) >= len(self.images):
            raise DataError(f"{self.images.folder}: no image decodes")
        bits = np.random.Philox(key=self.seed, counter=[0, 2, index, 0])  # images.py has [0, 1, ..]
        generator = np.random.Generator(bits)
        while index in self.reasons:
            index = int(generator.integers(len(self.images)))
        return index

    def names(self) -> list[str]:
        """Return the names of bad images of all processes."""
        return [self.images.name(index) for index in sorted(self.reasons | self._recorded())]

    def _recorded(self) -> dict[int, str]:
        """Return reasons recorded by all processes, for images that are still listed."""
        if not self.path.exists():
            return {}
        reasons: dict[str, str] = {}
        for line in self.path.read_text().splitlines():
            with suppress(ValueError):  # a killed process leaves an incomplete line
                record = json.loads(line)
                reasons[record["image"]] = record["reason"]
        names = (self.images.name(index) for index in range(len(self.images)))
        return {
            index: reasons[name]
            for index, name in enumerate(names)
            if name in reasons and index not in self.repaired
        }

    def _refusal(self) -> str:
        bad = [self.reasons[index] for index in sorted(self.reasons)]
        unreadable = (self.images.folder / name for name in self.images.unreadable)
        bad += [f"{path} does not open ({open_error(str(path))})" for path in unreadable]
        total = len(self.images) + len(self.images.unreadable)
        lines = "\n  ".join(bad[:10])
        ellipsis = f"\n  and {len(bad) - 10} more" if len(bad) > 10 else ""
        return (
            f"{self.images.folder}: {len(bad)} of {total} images are bad, and "
            f"{self.tolerated} tolerated:\n  {lines}{ellipsis}\n"
            f"Run the same command with --tolerated-images {len(bad)} to replace each by another "
            "image, or repair the files. Do not delete them: the run could not resume"
        )
