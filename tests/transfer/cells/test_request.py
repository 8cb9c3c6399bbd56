"""A request survives JSON and command-line arguments."""

from pathlib import Path

import pytest
import tyro

from transfer.cells.command import Evaluate
from transfer.cells.request import Request, Settings, command_line_args, from_json, to_json
from transfer.encoders.options import Checkpoint, EncoderOptions
from transfer.finetuning.options import TrainingOptions

ENCODER = EncoderOptions(encoder="timm:x", input_px=96, input_mean=(0.5, 0.4, 0.3))
TRAINING = TrainingOptions(engine="torchvision", gpus=2, learning_rates=(0.1, 0.01))
REQUEST = Request(
    task="coco_det",
    checkpoint=Checkpoint(
        ckpt=Path("a b.pth"),
        name="mine",
        declared="",
        branch="student",
        network=ENCODER,
        heads=(2,),
    ),
    seed=3,
    settings=Settings(
        data=Path("data"),
        schedule="0.5",
        features_in="bfloat16",
        keep_crops=True,
        training=TRAINING,
    ),
)


def test_json_is_read_back() -> None:
    request = Request(
        task="coco_det",
        checkpoint=Checkpoint(ckpt=Path("x.pth"), snapshot=True),
        variant="search",
        changes={"learning_rates": (0.1, 0.2)},
    )
    for each in (REQUEST, request):
        assert from_json(Request, to_json(each)) == each


def test_removed_fields_of_older_json_are_left_out() -> None:
    content = to_json(REQUEST)
    content["settings"]["training"]["rates_at_once"] = 2
    assert from_json(Request, content) == REQUEST


@pytest.mark.parametrize("request_", [REQUEST, REQUEST.absolute()])
def test_words_mean_the_request(request_: Request) -> None:
    assert tyro.cli(Evaluate, args=command_line_args(request_)).request == request_
