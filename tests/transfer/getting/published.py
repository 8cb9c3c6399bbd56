"""Small archives of every set, in the layouts of the published ones."""

import hashlib
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Packed:
    """The archives of one source, by their usual names."""

    files: Mapping[str, Path]

    def md5(self, name: str) -> str:
        """Return the MD5 of an archive."""
        return hashlib.md5(self.files[name].read_bytes()).hexdigest()


def tar(file: Path, content: Mapping[str, Path]) -> Path:
    """Write a tar file, compressed by its name, of files and folders at these places."""
    file.parent.mkdir(parents=True, exist_ok=True)
    mode = "w:gz" if file.name.endswith("gz") else "w"
    with tarfile.open(file, mode) as archive:  # type: ignore[call-overload]
        for place, source in content.items():
            archive.add(source, place)
    return file


def zip_(file: Path, content: Mapping[str, Path]) -> Path:
    """Write a zip file of files and folders at these places."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        for place, source in content.items():
            inside = [source, *sorted(source.rglob("*"))] if source.is_dir() else [source]
            for path in inside:
                archive.write(path, Path(place) / path.relative_to(source))
    return file


def pack(key: str, data: Path, folder: Path) -> Packed:
    """Pack the small version of a source below a data folder."""
    return Packed(PACKERS[key](data, folder))


def _cifar10(data: Path, folder: Path) -> dict[str, Path]:
    name, inside = "cifar-10-python.tar.gz", "cifar-10-batches-py"
    return {name: tar(folder / name, {inside: data / inside})}


def _cifar100(data: Path, folder: Path) -> dict[str, Path]:
    name, inside = "cifar-100-python.tar.gz", "cifar-100-python"
    return {name: tar(folder / name, {inside: data / inside})}


PACKERS: dict[str, Callable[[Path, Path], dict[str, Path]]] = {
    "cifar10": _cifar10,
    "cifar100": _cifar100,
}
