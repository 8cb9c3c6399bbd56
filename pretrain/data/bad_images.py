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
    """The bad images of a run, which all processes and their workers record in one file."""

    images: TrainingImages
    path: Path
    seed: int
    tolerated: int
    indices: set[int] = field(default_factory=set)
    """Indices of the bad images that this process has met."""

    def add(self, index: int, error: DecodeError) -> None:
        """Record a bad image for all processes of the run."""
        self.indices.add(index)
        name = self.images.name(index)
        if name not in self.recorded():
            line = json.dumps({"image": name, "reason": str(error)})
            with explain_write_errors(self.path, "--out"):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a") as file:
                    file.write(f"{line}\n")

    def recorded(self) -> dict[str, str]:
        """Return the names of the bad images of all processes, with reasons."""
        records: dict[str, str] = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            with suppress(ValueError):  # a killed process leaves an incomplete line
                record = json.loads(line)
                records[record["image"]] = record["reason"]
        return records

    def check(self) -> None:
        """Raise DecodeError with the bad images if there are more than tolerated."""
        unreadable = (self.images.folder / name for name in self.images.unreadable)
        bad = [
            *self.recorded().values(),
            *(f"{path} does not open ({open_error(str(path))})" for path in unreadable),
        ]
        if len(bad) <= self.tolerated:
            return
        total = len(self.images) + len(self.images.unreadable)
        lines = "\n  ".join(bad[:10])
        ellipsis = f"\n  and {len(bad) - 10} more" if len(bad) > 10 else ""
        raise DecodeError(
            f"{self.images.folder}: {len(bad)} of {total} images are bad, and "
            f"{self.tolerated} tolerated:\n  {lines}{ellipsis}\n"
            f"Run the same command with --tolerated-images {len(bad)} to replace each by another "
            "image, or repair the files. Do not delete them: the run could not resume"
        )

    def check_recorded(self) -> None:
        """Read the recorded images again, before a run, and forget those that were repaired.

        Raises DataError if too many are still bad.
        """
        recorded = self.recorded()
        self.path.unlink(missing_ok=True)
        for index in range(len(self.images) if recorded else 0):
            if self.images.name(index) in recorded:
                try:
                    self.images.read(index)
                except DecodeError as error:
                    self.add(index, error)
        try:
            self.check()
        except DecodeError as error:
            raise DataError(str(error)) from None

    def substitute(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return indices (n,) with known bad images replaced."""
        if not self.indices:
            return indices
        return np.array([self._substitute(index) for index in indices.tolist()], dtype=np.int64)

    def _substitute(self, index: int) -> int:
        if len(self.indices) >= len(self.images):
            raise DataError(f"{self.images.folder}: no image decodes")
        bits = np.random.Philox(key=self.seed, counter=[0, 2, index, 0])  # images.py has [0, 1, ..]
        generator = np.random.Generator(bits)
        while index in self.indices:
            index = int(generator.integers(len(self.images)))
        return index
