"""The torchvision engine: numerically detectron2's detector, on torchvision's blocks.

anchors.py    boxes that an RPN starts from
coding.py     boxes as deltas from other boxes
matching.py   which object a box stands for, and which boxes a loss looks at
proposals.py  the RPN
regions.py    boxes that the heads learn from
pooling.py    maps of boxes
heads.py      networks of boxes, masks and keypoints, and how they start
boxes.py      losses and detections of boxes
masks.py      targets, loss and probabilities of masks
keypoints.py  loss and places of keypoints
network.py    all of it as one network
detector.py   that network as a `Detector`

From torchvision come the ResNet, the pyramid, the convolutions of all heads, the predictors of
masks and keypoints, RoIAlign, suppression and the keypoints' loss. Its assembled detectors differ
from detectron2's (0.6) in these points; "here" is as detectron2 has it:

=====================  ====================================  =====================================
point                  torchvision's detectors               here
=====================  ====================================  =====================================
images                 0 to 1, resized by the model          0 to 255, resized by the loader
padding                to multiples of 32                    fpn to 32; c4 to the largest image
norms of the backbone  frozen                                trained, by `norm`
norms of new layers    by factory                            by `normed`, also RPN and keypoints
anchors' sides         rounded to px                         not rounded
anchors' stride        image over map, rounded down          4 to 64; c4 16
anchors' order         ratio, then size                      size, then ratio
RPN head of c4         one size per ratio and level          15 anchors on one map
proposals              ranked by probability                 by logit
... kept in training   2000                                  1000; keypoints 1500; c4 2000
... left out           sides below 1e-3 px                   empty ones only; not finite: an error
RPN's box loss         smooth L1, beta 1/9, over sampled     L1, over the wished-for sample
RPN's class loss       mean over sampled                     sum over the wished-for sample
RoIAlign               half a px off, 2 x 2 points, scale    aligned, as many points as px, fixed
                       by sizes                              scale
background             class 0, with box deltas              last class, without
box loss               smooth L1, beta 1/9                   L1; keypoints beta 0.5
detections left out    sides below 1e-2 px                   none before the resize to the image
mask targets           RoIAlign of full masks, soft          polygons drawn in the box, 0 or 1
keypoint regions       all on objects                        those with a visible keypoint inside
keypoint scores        logits                                peak over the sum of its map
start of linear        PyTorch's default                     uniform Xavier; .01 and .001 at the end
start of mask logits   He                                    .001
c4 head                none                                  layer4, extra norm, mean
extra norms            none                                  `extra_norms`, `rpn_gradient`
=====================  ====================================  =====================================

What remains different from detectron2; in all else the engines are equal to rounding, and one seed
draws the same anchors and regions in both:

=====================  ====================================  =====================================
point                  detectron2                            here
=====================  ====================================  =====================================
RoIAlign, autocast     features and boxes in half precision  both in float32
naiveSyncBN, bfloat16  moments summed in bfloat16            in float32
start of new layers    drawn in its order                    in another, of the same distributions:
                                                             one seed starts two detectors
names of tensors       its own                               torchvision's: the states of one do not
                                                             load in the other
=====================  ====================================  =====================================
"""

from transfer.detection.fit import check_can_be_built
from transfer.detection.recipe import Recipe
from transfer.detection.sample import Detector
from transfer.detection.torchvision_engine.detector import TorchvisionDetector
from transfer.detection.torchvision_engine.network import RCNN
from transfer.finetuning.norms import Norm


def build_detector(recipe: Recipe, *, arch: str, num_classes: int, norm: Norm) -> Detector:
    """A new detector on the CPU, random throughout; `load_backbone` comes next."""
    check_can_be_built(recipe, arch)
    return TorchvisionDetector(RCNN(recipe, arch=arch, num_classes=num_classes, norm=norm))
