"""A detector as the loop and the tests of it know it: `Detector`, on torchvision's blocks."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from transfer.detection.fit import check_all_placed
from transfer.detection.sample import Found
from transfer.detection.torchvision_engine.network import RCNN


class TorchvisionDetector:
    """As `Detector` says."""

    def __init__(self, network: RCNN) -> None:
        self.network: nn.Module = network
        self._rcnn = network

    def find(self, images: Sequence[Tensor]) -> list[Found]:
        """Detections on images (3, H, W) uint8; in eval mode."""
        return self._rcnn.detections(images)

    def stages(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """Maps after layer1 to layer4, through the network's preprocessing; eval mode."""
        return self._rcnn.stages(images)

    def load_backbone(self, state_dict: Mapping[str, Tensor]) -> int:
        """Put a backbone (torchvision's names) in its place; how many tensors were placed."""
        places = dict(self._rcnn.backbone.state_dict())
        check_all_placed(state_dict, places)
        self._rcnn.backbone.load_state_dict({**places, **state_dict})
        return len(state_dict)

    def is_rpn(self, parameter: str) -> bool:
        """Whether a parameter of the network belongs to the RPN or the norm in front of it."""
        return parameter.startswith("rpn.")
