"""The `Detector` of the torchvision engine."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from transfer.detection.proof import check_names_and_shapes
from transfer.detection.sample import ResizedDetections
from transfer.detection.torchvision_engine.network import RCNN


class TorchvisionDetector:
    """A `Detector` around the network of this engine."""

    def __init__(self, network: RCNN) -> None:
        self.network: nn.Module = network
        self._rcnn = network

    def find(self, images: Sequence[Tensor]) -> list[ResizedDetections]:
        """Return the k detections, boxes (k, 4), on each image (3, H, W) uint8, in eval mode."""
        return self._rcnn.detections(images)

    def feature_maps(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the maps (n, C, H, W) after layer1 to layer4, with preprocessing, in eval mode."""
        return self._rcnn.feature_maps(images)

    def load_backbone(self, state_dict: Mapping[str, Tensor]) -> int:
        """Load a backbone of torchvision's names and shapes; return how many tensors it has."""
        places = dict(self._rcnn.backbone.state_dict())
        check_names_and_shapes(state_dict, places)
        self._rcnn.backbone.load_state_dict({**places, **state_dict})
        return len(state_dict)

    def is_rpn(self, parameter: str) -> bool:
        """Return whether a parameter of the network belongs to the RPN or the norm before it."""
        return parameter.startswith("rpn.")
