"""The torchvision engine: detectron2's detector, built from torchvision's blocks.

proposals.py  the RPN and its anchors
regions.py    boxes that the heads are trained on: matching to objects, deltas, RoIAlign
heads.py      heads for boxes, masks and keypoints: initial weights, losses, detections
network.py    the complete detector

ResNet, pyramid, convolutions of all heads, predictors of masks and keypoints, RoIAlign, NMS and the
keypoint loss are torchvision's. torchvision's detectors differ from detectron2's (0.6) in these
points; the column "here" agrees with detectron2:

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
... dropped            sides below 1e-3 px                   empty ones only; not finite: an error
RPN's box loss         smooth L1, beta 1/9, over sampled     L1, over the nominal sample size
RPN's class loss       mean over sampled                     sum over the nominal sample size
RoIAlign               half a px off, 2 x 2 points, scale    aligned, as many points as px, fixed
                       by sizes                              scale
background             class 0, with box deltas              last class, without
box loss               smooth L1, beta 1/9                   L1; keypoints beta 0.5
detections dropped     sides below 1e-2 px                   none before the resize to the image
mask targets           RoIAlign of full masks, soft          polygons drawn in the box, 0 or 1
keypoint regions       all on objects                        those with a visible keypoint inside
keypoint scores        logits                                peak over the sum of its map
initial linear         PyTorch's default                     uniform Xavier; .01 and .001 at the end
initial mask logits    He                                    .001
c4 head                none                                  layer4, extra norm, mean
extra norms            none                                  `extra_norms`, `rpn_gradient`
=====================  ====================================  =====================================

The engines differ in the points below. In all others they are equal up to rounding, and one seed
draws the same anchors and regions in both:

=====================  ====================================  =====================================
point                  detectron2                            here
=====================  ====================================  =====================================
RoIAlign, autocast     features and boxes in half precision  both in float32
naiveSyncBN, bfloat16  moments summed in bfloat16            in float32
initial new layers     drawn in detectron2's order           in another order: equal distributions,
                                                             but other weights
names of tensors       detectron2's                          torchvision's: the states of one do not
                                                             load in the other
=====================  ====================================  =====================================
"""
