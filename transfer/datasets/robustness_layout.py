"""Small ImageNet-C and ObjectNet, written the way their publishers do."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from transfer.datasets.imagenet_c import SEVERITIES
from transfer.datasets.layouts import write_file
from transfer.datasets.objectnet import WNIDS


def write_imagenet_c(
    folder: Path, kinds: Sequence[str], wnids: Sequence[str], draw: Callable[[str, int], bytes]
) -> None:
    """As published, an image per class: KIND/SEVERITY/WNID; `draw` gets class and severity."""
    for kind in kinds:
        for severity in SEVERITIES:
            for number, wnid in enumerate(wnids):
                name = f"ILSVRC2012_val_{number + 1:08d}.JPEG"
                write_file(folder / kind / str(severity) / wnid / name, draw(wnid, severity))


def write_objectnet(
    root: Path, wnids: Sequence[str], num_images: int, draw: Callable[[str], bytes]
) -> None:
    """As published: images/FOLDER/*.png, and the labels of the folders beside them."""
    folder = root / "objectnet-1.0"
    labels = {wnid: label for label, wnid in WNIDS.items()}
    known = {"".join(filter(str.isalpha, labels[wnid])).lower(): labels[wnid] for wnid in wnids}
    mapping = {"air_freshener": "Air freshener"} | known
    content = json.dumps(mapping).encode()
    write_file(folder / "mappings" / "folder_to_objectnet_label.json", content)
    for name, label in mapping.items():
        for i in range(num_images if label in WNIDS else 1):
            image = draw(WNIDS.get(label, wnids[0]))
            write_file(folder / "images" / name / f"{i:015x}.png", image)
