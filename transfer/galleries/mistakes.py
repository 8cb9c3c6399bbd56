"""Images about which a classifier is most wrong: it is sure of another class than the label."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transfer.galleries.tile import NUM_IMAGES, Tile, jpeg, thumbnail

if TYPE_CHECKING:
    from torch import Tensor

    from transfer.datasets.images import Images

SIDE_PX = 160


def mistakes(images: Images, scores: Tensor, labels: Tensor) -> list[Tile]:
    """Return the wrongly classified images with the largest lead of the wrong class, worst first.

    scores (n, L) and labels (n,) in the order of the images.
    """
    import torch

    if len(images) != len(labels):
        raise ValueError(f"{len(labels)} predictions for {len(images)} images")
    scores, labels = scores.float().cpu(), labels.cpu()
    best, predicted = scores.max(dim=1)
    lead = best - scores.gather(1, labels[:, None])[:, 0]
    lead[predicted == labels] = -1.0
    order = torch.sort(lead, descending=True, stable=True).indices[:NUM_IMAGES].tolist()
    names = images.class_names
    return [
        Tile(
            jpeg=jpeg(thumbnail(images[i][0], SIDE_PX)),
            group="most wrong",
            caption=f"{names[int(labels[i])]} taken for {names[int(predicted[i])]}",
            name=images.name(i),
        )
        for i in order
        if lead[i] > 0
    ]
