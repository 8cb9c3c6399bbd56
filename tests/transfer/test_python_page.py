"""The code of docs/howto/python.md runs as printed, with its errors."""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest

import pretrain.pixels
import pretrain.running
import transfer
from pretrain.running.errors import SuiteError

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
LIGHTNING = [block for block in BLOCKS if "import lightning" in block]


def scope(small_data: Path, folder: Path) -> dict[str, Any]:
    """Return the folders that the page leaves to its reader."""
    return {"DATA": small_data, "RUNS": folder / "runs", "RESULTS": folder / "results"}


def test_the_page_runs_from_top_to_bottom(small_data: Path, tmp_path: Path) -> None:
    names = scope(small_data, tmp_path)
    for block in BLOCKS:
        if block not in LIGHTNING:
            exec(block, names)
    assert len(LIGHTNING) == 1
    assert list(names["ours"]["task"]) == ["cifar10_knn"]


@pytest.mark.skipif(find_spec("lightning") is None, reason="needs lightning")
def test_the_callback_of_lightning_logs_neighbors(small_data: Path, tmp_path: Path) -> None:
    import lightning
    import torch
    from torch import nn

    names = scope(small_data, tmp_path)
    for block in BLOCKS:
        exec(block, names)

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.backbone = names["net"]
            self.head = nn.Linear(16, 2)

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            loss: torch.Tensor = self.head(self.backbone(batch)).mean()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = lightning.Trainer(
        max_epochs=1, callbacks=[names["Neighbors"]()], logger=False, enable_checkpointing=False
    )
    images: Any = torch.randn(4, 3, 32, 32)
    trainer.fit(Module(), torch.utils.data.DataLoader(images, batch_size=2))
    assert 0 <= trainer.callback_metrics["knn"] <= 100


def test_every_error_of_an_evaluation_is_a_suite_error() -> None:
    modules = [
        import_module(result.name)
        for room in (transfer, pretrain.running, pretrain.pixels)
        for result in walk_packages(room.__path__, f"{room.__name__}.")
        if not result.name.endswith("__main__")
    ]
    remaining = [
        name
        for module in modules
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, Exception) and name[0] != "_"
        if kind.__module__ == module.__name__ and not issubclass(kind, SuiteError)
    ]
    # of the command lines; what begins with _ is caught in its own file
    assert remaining == ["OptionError"]
