"""Functions on features in memory: kNN, linear probe, linear SVM.

They compute the same as the tasks do on features of center crops, without datasets and records.
Features are tensors or NumPy arrays of any real type, on any device, with or without gradients.
Results are on the CPU, without gradients.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transfer.frozen.feature_cache import Features
from transfer.frozen.few_shot_heads import Problem, train_together
from transfer.frozen.finite import FeatureError as FeatureError
from transfer.frozen.finite import require_converged, require_finite
from transfer.frozen.linear_svm import Problems, eigenbasis, solve_batched
from transfer.frozen.nearest import knn_scores
from transfer.process_state import torch_defaults

Values = Tensor | NDArray[np.generic]


@torch_defaults()
def knn(
    train: Values,
    labels: Values,
    test: Values,
    *,
    num_neighbors: int = 200,
    temperature: float = 0.1,
) -> Tensor:
    """Classify features by the weighted votes of their nearest neighbors.

    A neighbor votes with exp(cosine similarity / temperature): Wu et al., CVPR 2018,
    arXiv:1805.01978.

    Args:
        train: Features (n, C) of the training images.
        labels: Classes (n,) of the training images, integers from 0 to L-1.
        test: Features (m, C) of the test images.
        num_neighbors: Number of neighbors that vote.
        temperature: Temperature of the votes.

    Returns:
        Votes (m, L) for each class, float32 on the CPU.

    Raises:
        NotFiniteError: A feature is infinite or not a number.
        FeatureError: The input is invalid otherwise, for example if train has fewer rows than
            num_neighbors.
    """
    pool, queries = _pool(train, labels, test)
    if not 1 <= num_neighbors <= len(pool.labels):
        raise FeatureError(
            f"num_neighbors is {num_neighbors}; expected 1 to {len(pool.labels)}, the rows of train"
        )
    _require_positive(temperature=temperature)
    return knn_scores(
        pool,
        queries,
        num_classes=int(pool.labels.max()) + 1,
        num_neighbors=num_neighbors,
        temperature=temperature,
    )


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
    """Train a linear classifier and score test features.

    Adam minimizes the cross-entropy.

    Args:
        train: Features (n, C) of the training images.
        labels: Classes (n,) of the training images, integers from 0 to L-1.
        test: Features (m, C) of the test images.
        learning_rate: Learning rate of Adam.
        epochs: Number of epochs.
        batch_size: Images per step.
        seed: Seed of the initial weights and of the order of the images.

    Returns:
        Scores (m, L), float32 on the CPU.

    Raises:
        NotFiniteError: A feature is infinite or not a number, or the training diverged.
        FeatureError: The input is invalid otherwise.
    """
    pool, queries = _pool(train, labels, test)
    num_images = len(pool.labels)
    _require_positive(learning_rate=learning_rate, epochs=epochs, batch_size=batch_size)
    batch_size = min(batch_size, num_images)
    weight, bias = train_together(
        pool,
        [Problem(torch.arange(num_images), seed)],
        num_classes=int(pool.labels.max()) + 1,
        iterations=epochs * -(-num_images // batch_size),
        learning_rate=learning_rate,
        batch_size=batch_size,
    )
    scores = queries @ weight[0].T.cpu() + bias[0].cpu()
    require_converged(scores, learning_rate)
    return scores


@torch_defaults()
def svm(train: Values, positive: Values, test: Values, *, cost: float = 1.0) -> Tensor:
    """Train a linear SVM per class and score test features.

    Each SVM minimizes the objective of LIBLINEAR's L2-loss SVM with a regularized bias.

    Args:
        train: Features (n, C) of the training images.
        positive: Whether each training image shows each class (n, L), bool or 0 and 1.
        test: Features (m, C) of the test images.
        cost: C, the weight of the loss relative to the regularization.

    Returns:
        Scores (m, L), float64 on the CPU.

    Raises:
        NotFiniteError: A feature is infinite or not a number.
        FeatureError: The input is invalid otherwise.
    """
    positives = _tensor("positive", positive)
    images, queries = _features(train, test, torch.float64)
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


def _pool(train: Values, labels: Values, test: Values) -> tuple[Features, Tensor]:
    """Return checked training features with labels, and test features."""
    classes = _tensor("labels", labels)
    if classes.ndim != 1 or classes.is_floating_point():
        raise FeatureError(
            f"labels are {tuple(classes.shape)} of {classes.dtype}; expected integers (n,), a "
            "class index per row of train"
        )
    classes = classes.long()
    if len(classes) and int(classes.min()) < 0:
        index = int(classes.argmin())
        raise FeatureError(f"label {index} is {classes[index]}; expected a class index from 0 on")
    features, queries = _features(train, test, torch.float32)
    _require_equal_length(classes, features, "labels")
    return Features(features, classes), queries


def _features(train: Values, test: Values, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return training and test features in one dtype; check shapes and values."""
    checked = []
    for name, values in (("train", train), ("test", test)):
        features = _tensor(name, values)
        if features.ndim != 2 or not features.shape[1]:
            raise FeatureError(
                f"{name} is {tuple(features.shape)}; expected features (n, C), a row per image"
            )
        require_finite(features.float(), "row {}".format, f"of {name}")
        checked.append(features.to(dtype).contiguous())  # the layout affects rounding
    if checked[0].shape[1] != checked[1].shape[1]:
        raise FeatureError(
            f"train has {checked[0].shape[1]} features per row and test has {checked[1].shape[1]}; "
            "expected features of the same network"
        )
    if not len(checked[0]):
        raise FeatureError("train has no rows")
    return checked[0], checked[1]


def _tensor(name: str, values: Values) -> Tensor:
    """Return the values on the CPU, without a graph."""
    if isinstance(values, np.ndarray):
        # torch accepts no reversed or read-only arrays and no other byte order
        values = torch.from_numpy(np.require(values, values.dtype.newbyteorder("="), ["C", "W"]))
    if not isinstance(values, Tensor):
        raise FeatureError(f"{name} is a {type(values).__name__}; expected a tensor or an array")
    tensor = values.detach()
    if tensor.is_complex():
        raise FeatureError(f"{name} is a tensor of {tensor.dtype}; expected real numbers")
    return tensor.cpu()


def _require_equal_length(rows: Tensor, train: Tensor, name: str) -> None:
    if len(rows) != len(train):
        raise FeatureError(f"{name}: {len(rows)} rows, but train has {len(train)}; expected equal")


def _require_positive(**settings: float) -> None:
    for name, value in settings.items():
        if not 0 < value < math.inf:
            raise FeatureError(f"{name} is {value}; expected a finite number above 0")
