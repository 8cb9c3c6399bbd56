"""Test a published linear segmentation head on VOC 2012 val, without training.

This checks the feature maps, resampling, sliding windows and mIoU of
`voc12_seg_linear` against published numbers. DINOv2's README links heads for its encoders;
Oquab et al., TMLR 2024 (arXiv:2304.07193), Table 10 has their mIoU.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

from torch import Tensor

from pretrain.running.processes import process_group, started_processes
from transfer.datasets.catalog import open_segmented
from transfer.encoders.architectures import BackboneError
from transfer.encoders.files import read_file
from transfer.encoders.opening import open_file
from transfer.encoders.options import EncoderOptions
from transfer.segmentation.linear import LinearSegmenter
from transfer.segmentation.masks import Predicted
from transfer.segmentation.predict import predict
from transfer.tasks import TASKS

if TYPE_CHECKING:
    from transfer.tasks.segmentation import SegmentationLinear

HEAD_NAMES = {
    "decode_head.bn.weight": "norm.weight",
    "decode_head.bn.bias": "norm.bias",
    "decode_head.bn.running_mean": "norm.running_mean",
    "decode_head.bn.running_var": "norm.running_var",
    "decode_head.conv_seg.weight": "classifier.weight",
    "decode_head.conv_seg.bias": "classifier.bias",
}
"""Tensors of mmsegmentation's linear head with batch norm, and their names here."""


def score_head(ckpt: Path, network: EncoderOptions, head: Path, data: Path) -> str:
    """Return a line with the mIoU of an encoder with a published head.

    Raises BackboneError if they do not fit, ValueError in one of several processes.
    """
    if started_processes() > 1:
        raise ValueError("test-head runs in one process; start it without torchrun")
    encoder, _ = open_file(ckpt, network)
    task = cast("SegmentationLinear", TASKS["voc12_seg_linear"])
    if reason := task.unsupported_reason(encoder):
        raise BackboneError(reason)
    task = task.for_backbone(encoder)
    split = open_segmented(task.dataset, data, "test")
    with process_group() as process, TemporaryDirectory() as folder:
        segmenter = task.build(encoder, len(split.class_names), "BN")
        segmenter.to(process.device)
        load_head(segmenter, head)
        predict(segmenter, split, Path(folder), process)
        mean_iou = Predicted(Path(folder), split).overlap.mean
    return f"{encoder.name}: mIoU {mean_iou:.2f} on {len(split):,} images"


def load_head(network: LinearSegmenter, path: Path) -> None:
    """Set the norm and classifier of a network from a file.

    Raises BackboneError if they do not fit.
    """

    tensors = {
        name[max(0, name.rfind("decode_head.")) :]: tensor  # without a prefix such as state_dict
        for name, tensor in read_file(path).tensors.items()
    }
    missing = [name for name in HEAD_NAMES if name not in tensors]
    if missing:
        raise BackboneError(f"{path}: not a linear head of mmsegmentation, {missing[0]} is missing")
    state: dict[str, Tensor] = network.state_dict()
    for name, ours in HEAD_NAMES.items():
        if tensors[name].shape != state[ours].shape:
            sizes = f"{list(tensors[name].shape)} instead of {list(state[ours].shape)}"
            raise BackboneError(f"{path}: {name} has the shape {sizes}")
        state[ours] = tensors[name]
    network.load_state_dict(state)
