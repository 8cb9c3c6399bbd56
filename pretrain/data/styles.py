"""A style bank: copies of the training images in other styles, prepared by the user.

BANK/<style>/<name of the image below the data folder>, for example by AdaIN with paintings as
for Stylized-ImageNet: Geirhos et al., ICLR 2019, arXiv:1811.12231.
"""

from dataclasses import dataclass
from pathlib import Path

from pretrain.data.images import DataError, TrainingImages
from pretrain.data.tree import walk


@dataclass(frozen=True)
class StyleBank:
    """Names of styles that hold a copy of every training image."""

    folder: Path
    images_folder: Path
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def styled_path(self, file: Path, style: int) -> Path:
        """Return the path of a training image's copy in a style, given by its place in `names`."""
        return self.folder / self.names[style] / file.relative_to(self.images_folder)


def find_styles(folder: Path, images: TrainingImages) -> StyleBank:
    """Return the styles of a bank; DataError unless each holds a copy of every image."""
    if not folder.is_dir():
        raise DataError(
            f"{folder} is no folder; --style-bank expects a folder that holds one folder per style"
        )
    names = tuple(sorted(place.name for place in folder.iterdir() if place.is_dir()))
    if not names:
        raise DataError(
            f"{folder} holds no folder; --style-bank expects one folder per style in it"
        )
    bank = StyleBank(folder, images.folder, names)
    missing: list[Path] = []
    for name in names:
        # on a network disk one walk through the folder is faster than a look-up for each file
        present = set(walk(folder / name).files())
        paths = map(images.files.below_root, range(len(images)))
        missing += [folder / name / path for path in paths if path not in present]
    if missing:
        raise DataError(
            f"{folder}: {len(missing)} of {len(bank) * len(images)} styled copies are missing, "
            f"first {missing[0].relative_to(folder)}; each style must hold every image under its "
            f"name in {images.folder}"
        )
    return bank
