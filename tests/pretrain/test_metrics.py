import json
import os
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image

from pretrain.metrics import MetricsLog, mean_metrics_after, save_view_grid
from pretrain.running.atomic_files import WriteError


def test_a_log_drops_what_lies_after_the_step_it_resumes_from(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    for step in (2, 4, 6):
        log.write(step, {"loss": float(step)})
    log.close()
    resumed = MetricsLog(tmp_path, 4)
    resumed.write(6, {"loss": 0.5})
    resumed.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [
        {"step": 2, "loss": 2.0},
        {"step": 4, "loss": 4.0},
        {"step": 6, "loss": 0.5},
    ]


@pytest.mark.parametrize(
    "torn", [b'{"step": 8, "lo', b"\0" * 20, b"\0\0{}\n", b'{"step": "\xff', b"[1]\n"]
)
def test_a_log_that_a_dying_machine_has_left_keeps_its_whole_lines(
    tmp_path: Path, torn: bytes
) -> None:
    log = MetricsLog(tmp_path, 0)
    log.write(2, {"loss": 2.0})
    log.close()
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(torn)
    MetricsLog(tmp_path, 4).close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 2, "loss": 2.0}\n'


def test_a_kill_while_a_log_is_resumed_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MetricsLog(tmp_path, 0)
    log.write(2, {"loss": 2.0})
    log.close()

    def killed(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        MetricsLog(tmp_path, 4)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 2, "loss": 2.0}\n'


def test_a_full_disk_of_the_log_is_named_with_its_path(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    log.path = Path("/dev/full")
    with pytest.raises(WriteError, match=r"^/dev/full: cannot be written .No space left on device"):
        log.write(2, {"loss": 1.0})
    log.close()


@pytest.mark.parametrize("broken", ["init", "teardown"])
def test_wandb_error_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    broken: str,
) -> None:
    error = ConnectionResetError("Connection lost\nand more")
    wandb = Mock(**{f"{broken}.side_effect": error})
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    log = MetricsLog(tmp_path, 0, "ssl")
    for step in (1, 2, 3):
        log.write(step, {"loss": 1.0})
    log.close()
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 3
    line = "Weights & Biases failed (Connection lost); the run continues without it\n"
    assert capsys.readouterr().err.endswith(line)


@pytest.mark.parametrize("installed", [True, False])
def test_log_is_written_without_tensorboard(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    installed: bool,
) -> None:
    if installed:
        (tmp_path / "tensorboard").touch()
    else:
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    log = MetricsLog(tmp_path, 0)
    log.write(1, {"loss": 1.0})
    log.close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "loss": 1.0}\n'
    assert f"TensorBoard in {tmp_path}/tensorboard failed (" in capsys.readouterr().err


def test_means_of_the_last_epoch_weigh_each_line_by_its_steps(tmp_path: Path) -> None:
    lines = [(20, 1.0), (40, 5.0), (50, 2.0)]
    text = "".join(json.dumps({"step": s, "loss": v, "epoch": 0.1}) + "\n" for s, v in lines)
    (tmp_path / "metrics.jsonl").write_text(text + '{"step": 60, "lo')
    assert mean_metrics_after(tmp_path, 20) == {"loss": pytest.approx((20 * 5.0 + 10 * 2.0) / 30)}


def test_a_row_shows_the_views_of_one_image_whatever_their_sizes(tmp_path: Path) -> None:
    bright, dark = torch.full((9, 3, 16, 16), 9.0), torch.full((9, 3, 8, 8), -9.0)
    save_view_grid(tmp_path, [bright, dark], (0.5, 0.4, 0.3), (0.2, 0.3, 0.1))
    with Image.open(tmp_path / "views.jpg") as sheet:
        pixels = np.asarray(sheet)
    assert pixels.shape == (6 * 100 + 4, 2 * 100 + 4, 3)
    assert pixels[5:95, 5:95].min() > 250
    assert pixels[505:595, 115:195].max() < 5


def test_resumed_run_continues_its_wandb_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = Mock()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    for folder in (tmp_path / "a", tmp_path / "a", tmp_path / "b"):
        folder.mkdir(exist_ok=True)
        log = MetricsLog(folder, 0, "ssl", {"recipe": "jcl/smoke"})
        wandb.teardown.assert_not_called()
        log.close()
        wandb.teardown.assert_called_once_with()
        wandb.teardown.reset_mock()
    watched = [call.kwargs["root_logdir"] for call in wandb.tensorboard.patch.call_args_list]
    assert watched == [str(tmp_path / name / "tensorboard") for name in "aab"]
    first, again, second = (call.kwargs for call in wandb.init.call_args_list)
    assert (first["project"], first["config"]["recipe"]) == ("ssl", "jcl/smoke")
    assert first["id"] == again["id"] != second["id"]
    assert first["resume"] == "allow"
