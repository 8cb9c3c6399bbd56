"""Writes detectron2's answers to fixed weights and images.

`python -m tests.transfer.detection.golden` needs detectron2. The torchvision engine is checked
against these files on every machine.
"""

import json
from typing import Any

from tests.transfer.detection.fixed_detector import answer, fill, in_double
from tests.transfer.detection.golden import GOLDEN, path_of, summary
from tests.transfer.detection.parity import NUM_CLASSES
from tests.transfer.detection.same_weights import to_torchvision, torchvision_name
from tests.transfer.detection.small_samples import small_samples
from transfer.detection import detectron2_engine


def rounded(value: Any) -> Any:
    """Round each number to nine digits, enough for float32."""
    match value:
        case float():
            return float(f"{value:.9g}")
        case list():
            return [rounded(each) for each in value]
        case dict():
            return {key: rounded(each) for key, each in value.items()}
    return value


if __name__ == "__main__":
    for name, (arch, recipe) in GOLDEN.items():
        detector = detectron2_engine.build_detector(
            recipe, arch=arch, num_classes=NUM_CLASSES, norm="BN"
        )
        tensors = detector.state_dict()
        fill({torchvision_name(theirs, recipe): values for theirs, values in tensors.items()})
        in_double(detector)
        found = answer(detector, small_samples(2, NUM_CLASSES))
        gradients = to_torchvision(found.gradients, recipe)
        path = path_of(name)
        path.write_text(json.dumps(rounded(summary(found, gradients))) + "\n")
        print(path, path.stat().st_size, "bytes")
