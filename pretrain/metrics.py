"""The logs of a run: metrics.jsonl, TensorBoard, Weights & Biases, images.

Each line contains the means over a window of steps. Weights & Biases copies TensorBoard's events,
if requested; `WANDB_MODE=offline` keeps its log on disk.
"""

import io
import json
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision.utils import save_image

from pretrain.running.atomic_files import explain_write_errors, write_whole
from pretrain.running.console import print_line

LOG_FILE = "metrics.jsonl"
NOT_METRICS = ("step", "epoch", "learning_rate", "images_per_s", "data_share")
"""Fields of a log line that are not metrics of the method."""


class Window:
    """Metrics of the steps since the last reading.

    Values stay on the device, so `add` does not synchronize; reading does. A method may
    skip metrics in steps that are not read; means are over the other steps.
    """

    def __init__(self) -> None:
        self.values: dict[str, list[Tensor]] = {}

    def add(self, metrics: dict[str, Tensor]) -> None:
        """Add the metrics of one step: scalars on any device."""
        for name, value in metrics.items():
            self.values.setdefault(name, []).append(value.detach().float())

    def state_dict(self) -> dict[str, Tensor]:
        """Return name -> values (steps,) on the CPU.

        Waits for the device once per metric.
        """
        return {
            name: torch.stack([value.to(values[-1].device) for value in values]).cpu()
            for name, values in self.values.items()
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore name -> values of shape (steps,)."""
        self.values = {name: list(values) for name, values in state.items()}

    def take_means(self) -> dict[str, float]:
        """Return the mean of each metric and empty the window."""
        means = {name: values.mean().item() for name, values in self.state_dict().items()}
        self.values.clear()
        return means


class MetricsLog:
    """Writer of metrics.jsonl and TensorBoard events.

    On resume, it removes the entries after `resume_step`. project: Weights & Biases project that
    copies the events; "": none. settings: shown there next to the curves. The run continues without
    TensorBoard or Weights & Biases after an error of theirs.
    """

    def __init__(
        self,
        folder: Path,
        resume_step: int,
        project: str = "",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.path = folder / LOG_FILE
        earlier_lines = [line for step, line in _lines(self.path) if step <= resume_step]
        # atomically: a kill between truncating and writing would lose all earlier lines
        write_whole(self.path, "".join(f"{line}\n" for line in earlier_lines).encode())
        self.wandb: Any = None
        if project:  # before the event writer, which it patches
            self.wandb = _try("Weights & Biases", _start_wandb, project, folder, settings or {})
        board = folder.absolute() / BOARD_FOLDER
        self.board: Any = _try(f"TensorBoard in {board}", _start_board, board, resume_step)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Write one line of values after `step` finished steps.

        Raises WriteError if that fails.
        """
        line = {name: value if math.isfinite(value) else None for name, value in values.items()}
        with explain_write_errors(self.path), self.path.open("a") as file:
            file.write(json.dumps({"step": step, **line}) + "\n")
        if self.board is not None:
            self.board = _try("TensorBoard", _add_scalars, self.board, step, values)

    def close(self) -> None:
        if self.board is not None:
            _try("TensorBoard", self.board.close)
        if self.wandb is not None:
            _try("Weights & Biases", self.wandb.teardown)


def _try(writer: str, action: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a writer's action, or None after an error, which is printed."""
    try:
        return action(*args)
    except Exception as error:  # network, helper process, version: any type of error
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        print_line(f"{writer} failed ({reason}); the run continues without it")
        return None


BOARD_FOLDER = "tensorboard"
ID_FILE = "wandb-id"
"""File with the id of the run on Weights & Biases."""


def _start_wandb(project: str, folder: Path, settings: Mapping[str, object]) -> Any:
    """Start or resume a folder's Weights & Biases run; return wandb."""
    import wandb

    id_path = folder / ID_FILE
    if not id_path.exists():
        # stored in the folder: the same path may be another run on another machine or later
        write_whole(id_path, secrets.token_hex(8).encode())
    path = str(folder.absolute())
    # like sync_tensorboard=True, which only works in the current folder
    wandb.tensorboard.patch(root_logdir=f"{path}/{BOARD_FOLDER}", save=False)
    wandb.init(
        project=project,
        name=folder.name,
        id=id_path.read_text(),
        dir=path,
        resume="allow",
        config={"folder": path, **settings},
    )
    return wandb


def _start_board(folder: Path, resume_step: int) -> Any:
    # imported here: it may fail if installed packages do not match
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=resume_step + 1)


def _add_scalars(board: Any, step: int, values: dict[str, float]) -> Any:
    for name, value in values.items():
        board.add_scalar(name, value, step)
    return board


def mean_metrics_after(folder: Path, start_step: int) -> dict[str, float]:
    """Return the mean of each metric over the steps after `start_step`, from the log.

    All steps of a line count if it ends after `start_step`. Metrics
    that were not finite are skipped; without a log, the result is empty.
    """
    sums: dict[str, float] = {}
    steps: dict[str, int] = {}
    previous = 0
    for step, text in _lines(folder / LOG_FILE):
        for name, value in json.loads(text).items():
            if step > start_step and name not in NOT_METRICS and value is not None:
                sums[name] = sums.get(name, 0.0) + value * (step - previous)
                steps[name] = steps.get(name, 0) + step - previous
        previous = step
    return {name: total / steps[name] for name, total in sums.items()}


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield step and text of each complete line of a log.

    A killed run may leave half a line at the end, and a crashed machine zeros.
    """
    content = path.read_bytes() if path.exists() else b""
    for line in content.decode(errors="replace").split("\n")[:-1]:
        with suppress(ValueError, KeyError, TypeError):
            yield int(json.loads(line)["step"]), line


NUM_IMAGES, MAX_VIEWS = 6, 10
SIDE_PX, GAP_PX = 96, 4


def save_view_grid(
    folder: Path, views: Sequence[Tensor], mean: Sequence[float], std: Sequence[float]
) -> None:
    """Write a picture of the first images and their views.

    Each image has a row, and each view a column. views: V of (n, 3, S, S), normalized by mean and
    std; only the first few are drawn. Disk errors are ignored.
    """
    scale, shift = (torch.tensor(values).view(3, 1, 1) for values in (std, mean))
    tiles = [
        interpolate(
            (view[:NUM_IMAGES].float().cpu() * scale + shift).clamp(0, 1),
            (SIDE_PX, SIDE_PX),
            mode="bilinear",
            antialias=True,
        )
        for view in views[:MAX_VIEWS]
    ]
    rows = torch.stack(tiles, dim=1).flatten(0, 1)
    buffer = io.BytesIO()
    save_image(rows, buffer, "JPEG", nrow=len(tiles), padding=GAP_PX, pad_value=1.0)
    with suppress(OSError):  # a failed picture must not stop the run
        write_whole(folder / "views.jpg", buffer.getbuffer())
