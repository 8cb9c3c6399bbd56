"""Functions on features in memory: kNN, linear probe, linear SVM.

They compute the same as the tasks do on features of center crops, without datasets and records.
Features are tensors or NumPy arrays of any real type, on any device, with or without gradients.
Results are on the CPU, without gradients.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.running.command_line import Range
from pretrain.running.errors import NotFiniteError, SuiteError
from transfer.frozen.feature_cache import Features
from transfer.frozen.few_shot_heads import Problem, train_together
from transfer.frozen.finite import require_finite
from transfer.frozen.linear_svm import Problems, eigenbasis, solve_batched
from transfer.frozen.nearest import knn_scores
from transfer.process_state import torch_defaults

Values = Tensor | NDArray[np.generic]
SETTINGS = Range(0, 1e30, open_below=True)
MAX_CLASSES = 2**20
"""Maximum number of classes (columns of the scores); ImageNet-21k has 21,841."""


class FeatureError(SuiteError, ValueError):
    """Invalid images, features, labels or settings in the Python API."""


@torch_defaults()
def knn(
    train: Values,
    labels: Values,
    test: Values,
    *,
    num_neighbors: int = 200,
    temperature: float = 0.1,
) -> Tensor:
    """Return weighted kNN votes (m, L) for test features (m, C).

    train (n, C), labels (n,): integers from 0 to L-1. A neighbor votes with exp(cosine similarity /
    temperature): Wu et al., CVPR 2018, arXiv:1805.01978. NotFiniteError if a row is not finite;
    FeatureError for other invalid input, such as fewer than num_neighbors training images.
    """
    label_tensor, bank, queries = _labels(labels), *_features(train, test, torch.float32)
    _require_equal_length(label_tensor, bank, "labels")
    if not 1 <= num_neighbors <= len(bank):
        raise FeatureError(
            f"num_neighbors is {num_neighbors}; expected 1 to {len(bank)}, the rows of train"
        )
    _require_positive(temperature=temperature)
    try:
        return knn_scores(
            Features(bank, label_tensor),
            queries,
            num_classes=int(label_tensor.max()) + 1,
            num_neighbors=num_neighbors,
            temperature=temperature,
        )
    except ValueError as error:
        raise FeatureError(str(error)) from error


@torch_defaults()
def linear_probe(
    train: Values,
    labels: Values,
    test: Values,
    *,
    learning_rate: float = 1e-3,
    epochs: int = 100,
    batch_size: int = 256,
    seed: int = 0,
) -> Tensor:
    """Train a linear classifier and return its test scores (m, L).

    train (n, C), test (m, C), labels (n,): integers from 0 to L-1. Adam minimizes the
    cross-entropy; the seed draws initial weights and order. NotFiniteError if a row is not finite
    or the training diverged; FeatureError for other invalid input.
    """
    label_tensor, pool, queries = _labels(labels), *_features(train, test, torch.float32)
    _require_equal_length(label_tensor, pool, "labels")
    _require_positive(learning_rate=learning_rate, epochs=epochs, batch_size=batch_size)
    batch_size = min(batch_size, len(pool))
    weight, bias = train_together(
        Features(pool, label_tensor),
        [Problem(torch.arange(len(pool)), seed)],
        num_classes=int(label_tensor.max()) + 1,
        iterations=epochs * -(-len(pool) // batch_size),
        learning_rate=learning_rate,
        batch_size=batch_size,
    )
    scores = queries @ weight[0].T.cpu() + bias[0].cpu()
    if not bool(scores.isfinite().all()):
        raise NotFiniteError(
            f"the linear classifier diverged at learning rate {learning_rate:g}. Lower the "
            "learning rate, or scale the features"
        )
    return scores


@torch_defaults()
def svm(train: Values, positive: Values, test: Values, *, cost: float = 1.0) -> Tensor:
    """Train a linear SVM per class and return test scores (m, L).

    Scores are float64. train (n, C); positive (n, L), bool or 0 and 1. Each SVM minimizes the
    objective of LIBLINEAR's L2-loss SVM with a regularized bias. NotFiniteError if a row is not
    finite; FeatureError for other invalid input.
    """
    positives, images, queries = (
        _tensor("positive", positive),
        *_features(train, test, torch.float64),
    )
    if positives.ndim != 2 or not positives.shape[1]:
        raise FeatureError(
            f"positive is {tuple(positives.shape)}; expected (n, L), a column per class"
        )
    _require_equal_length(positives, images, "positive")
    if bool(((positives != 0) & (positives != 1)).any()):
        low, high = positives.min().item(), positives.max().item()
        raise FeatureError(f"positive has values from {low} to {high}; expected bool, or 0 and 1")
    _require_positive(cost=cost)
    positives = positives.bool()
    problems = Problems(
        positive=positives.T.contiguous(),
        trained_on=torch.ones_like(positives.T),
        positive_weight=1.0,
    )
    costs = torch.full((positives.shape[1],), cost, dtype=torch.float64)
    return solve_batched(eigenbasis(images), problems, costs, tolerance=1e-4).scores(queries)


def _features(train: Values, test: Values, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return training and test features in one dtype; check shapes and values."""
    checked = []
    for name, values in (("train", train), ("test", test)):
        features = _tensor(name, values)
        if features.ndim != 2 or not features.shape[1]:
            raise FeatureError(
                f"{name} is {tuple(features.shape)}; expected features (n, C), a row per image"
            )
        require_finite(features.float(), lambda row, name=name: f"row {row} of {name}")  # type: ignore[misc]
        checked.append(features.to(dtype).contiguous())  # rounding depends on the layout
    if checked[0].shape[1] != checked[1].shape[1]:
        raise FeatureError(
            f"train has {checked[0].shape[1]} features per row and test has {checked[1].shape[1]}; "
            "expected features of the same network"
        )
    if not len(checked[0]):
        raise FeatureError("train has no rows")
    return checked[0], checked[1]


def _labels(values: Values) -> Tensor:
    """Return labels (n,) as int64."""
    labels = _tensor("labels", values)
    if labels.ndim != 1 or labels.is_floating_point():
        raise FeatureError(
            f"labels are {tuple(labels.shape)} of {_type(labels)}; expected integers (n,), a class "
            "index per row of train"
        )
    labels = labels.long()
    invalid = ((labels < 0) | (labels >= MAX_CLASSES)).nonzero().flatten().tolist()
    if invalid:
        raise FeatureError(
            f"label {invalid[0]} is {int(labels[invalid[0]])}; expected a class index from 0 to "
            f"L - 1, with at most {MAX_CLASSES:,} classes"
        )
    return labels


def _tensor(name: str, values: Values) -> Tensor:
    """Return the values on the CPU, without a graph."""
    if isinstance(values, np.ndarray):
        try:
            # torch accepts no reversed or read-only arrays and no other byte order
            native = np.require(values, values.dtype.newbyteorder("="), ["C", "W"])
            tensor = torch.from_numpy(native)
        except TypeError as error:
            raise FeatureError(f"{name} is an array of {values.dtype}; expected numbers") from error
    elif isinstance(values, Tensor):
        tensor = values.detach()
    else:
        raise FeatureError(f"{name} is a {type(values).__name__}; expected a tensor or an array")
    if tensor.is_meta or tensor.is_quantized or tensor.is_complex():
        location = " on the meta device" if tensor.is_meta else ""
        raise FeatureError(
            f"{name} is a tensor of {_type(tensor)}{location}; expected real numbers"
        )
    if tensor.layout is not torch.strided:
        raise FeatureError(f"{name} is {tensor.layout}; expected a dense tensor: .to_dense()")
    return tensor.cpu()


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _require_equal_length(rows: Tensor, train: Tensor, name: str) -> None:
    if len(rows) != len(train):
        raise FeatureError(f"{name}: {len(rows)} rows, but train has {len(train)}; expected equal")


def _require_positive(**settings: float) -> None:
    for name, value in settings.items():
        if value not in SETTINGS:
            raise FeatureError(f"{name} is {value}; expected {SETTINGS}")
