"""Evaluate a backbone file, or an encoder in memory, on downstream tasks.

    from transfer import Encoder, evaluate, tasks

__main__.py    python -m transfer
api.py         evaluate(encoder, task), for Python
released_head.py
               tests a published segmentation head without training
cells/         one evaluation: one backbone, task, protocol and seed, from the data to the record
tasks/         one task per file; TASKS
segmentation/  semantic segmentation
galleries/     pictures of a few predictions, stored next to a record
detection/     detectors: recipe, two engines, metrics
finetuning/    the loop that trains a complete network
frozen/        features of a frozen backbone, and everything that is trained on them
hours.py       GPU hours of tasks: seconds per image, measured or assumed; cost of a network
encoders/      opens checkpoints of any project; `Encoder`, the class of all networks
getting/       downloads, unpacks, sorts and checks datasets
datasets/      one dataset per file: description, reader, small version; the check of datasets
argument_names.py
               errors of public functions name arguments instead of options
fact_tables.py how print and notebooks show an encoder and a result
process_state.py
               runs public functions with torch's default settings
record.py      the result file
metrics.py     accuracy and average precision: pure functions
outcomes.py    predictions per test image in a record, to compare checkpoints on equal images

A module imports only from modules below it in this list, apart from imports inside functions.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pretrain.running.atomic_files import WriteError as WriteError
    from pretrain.running.errors import ArgumentError as ArgumentError
    from pretrain.running.errors import NotFiniteError as NotFiniteError
    from pretrain.running.errors import SuiteError as SuiteError
    from pretrain.running.lock import BusyError as BusyError
    from transfer.api import Result as Result
    from transfer.api import evaluate as evaluate
    from transfer.datasets.expected import DataError as DataError
    from transfer.encoders.architectures import BackboneError as BackboneError
    from transfer.encoders.encoder import Encoder as Encoder
    from transfer.encoders.opening import load_backbone as load_backbone
    from transfer.frozen.on_features import FeatureError as FeatureError
    from transfer.frozen.on_features import knn as knn
    from transfer.frozen.on_features import linear_probe as linear_probe
    from transfer.frozen.on_features import svm as svm
    from transfer.tasks import TaskError as TaskError

PUBLIC = {
    "ArgumentError": "pretrain.running.errors",
    "BackboneError": "transfer.encoders.encoder",
    "BusyError": "pretrain.running.lock",
    "DataError": "transfer.datasets.expected",
    "Encoder": "transfer.encoders.encoder",
    "FeatureError": "transfer.frozen.on_features",
    "NotFiniteError": "pretrain.running.errors",
    "Result": "transfer.api",
    "SuiteError": "pretrain.running.errors",
    "TaskError": "transfer.tasks",
    "WriteError": "pretrain.running.atomic_files",
    "evaluate": "transfer.api",
    "knn": "transfer.frozen.on_features",
    "linear_probe": "transfer.frozen.on_features",
    "load_backbone": "transfer.encoders.opening",
    "svm": "transfer.frozen.on_features",
}
"""Names of the Python API, imported on first use: commands stay fast."""


def __getattr__(name: str) -> Any:
    """Import a name of the API."""
    if name not in PUBLIC:
        raise AttributeError(f"module 'transfer' has no attribute {name!r}")
    return getattr(import_module(PUBLIC[name]), name)
