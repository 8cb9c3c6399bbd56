"""Functions on features accept any real type and explain wrong input."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from tests.rounding import assert_equal_up_to_rounding
from transfer import FeatureError, NotFiniteError, SuiteError, knn, linear_probe, svm
from transfer.frozen.finite import require_finite

Function = Callable[[Any, Any, Any], Tensor]


def neighbors(train: Any, labels: Any, test: Any) -> Tensor:
    return knn(train, labels, test, num_neighbors=5)


def probe(train: Any, labels: Any, test: Any) -> Tensor:
    return linear_probe(train, labels, test, epochs=20, learning_rate=0.03)


def machines(train: Any, labels: Any, test: Any) -> Tensor:
    """Return SVM scores for labels (n,) or for given positives."""
    positive = one_hot(labels) if isinstance(labels, Tensor) and labels.ndim == 1 else labels
    return svm(train, positive, test)


FUNCTIONS: list[Function] = [neighbors, probe, machines]
WITH_LABELS = FUNCTIONS[:2]


def clusters() -> tuple[Tensor, Tensor, Tensor]:
    """Return features (50, 6), labels (50,) and test features (9, 6).

    All values are multiples of 1/8 below 16, which every tested type holds exactly.
    """
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(50) % 5
    centers = torch.randint(-8, 8, (5, 6), generator=generator).float()
    noise = torch.randint(-8, 8, (59, 6), generator=generator) / 8
    return centers[labels] + noise[:50], labels, centers[torch.arange(9) % 5] + noise[50:]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_test_rows_get_the_class_of_their_cluster(function: Function) -> None:
    assert function(*clusters()).argmax(dim=1).tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]


def as_array(values: Tensor) -> np.ndarray:
    return values.numpy()


def read_only(values: Tensor) -> np.ndarray:
    array = values.numpy().copy()
    array.flags.writeable = False
    return array


FORMS: dict[str, Callable[[Tensor], Any]] = {
    "float64": Tensor.double,
    "float16": Tensor.half,
    "bfloat16": Tensor.bfloat16,
    "array": as_array,
    "float16 array": lambda values: values.numpy().astype(np.float16),
    "big-endian array": lambda values: values.numpy().astype(">f4"),
    "read-only array": read_only,
    "reversed array": lambda values: values.numpy()[::-1].copy()[::-1],
    "transposed": lambda values: values.T.contiguous().T,
    "parameter": lambda values: torch.nn.Parameter(values),
    "with a graph": lambda values: values.clone().requires_grad_() * 1,
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("form", FORMS)
def test_every_real_type_gives_the_same_scores(form: str, function: Function) -> None:
    train, labels, test = clusters()
    change = FORMS[form]
    result, expected = function(change(train), labels, change(test)), function(train, labels, test)
    assert torch.equal(result, expected)
    assert not result.requires_grad


@pytest.mark.parametrize("function", FUNCTIONS)
def test_integer_features_are_accepted(function: Function) -> None:
    train, labels, test = ((8 * part).long() for part in clusters())
    labels //= 8
    expected = function(train.float(), labels, test.float())
    assert torch.equal(function(train, labels, test.numpy()), expected)


@pytest.mark.parametrize("function", WITH_LABELS)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "uint16", "uint64", ">i8"])
def test_every_integer_type_of_labels_is_accepted(dtype: str, function: Function) -> None:
    train, labels, test = clusters()
    expected = function(train, labels, test)
    assert torch.equal(function(train, labels.numpy().astype(dtype), test), expected)
    if not dtype.startswith(">"):
        assert torch.equal(function(train, labels.to(getattr(torch, dtype)), test), expected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_scores_do_not_depend_on_the_gradient_mode(
    function: Function, mode: Callable[[], AbstractContextManager[None]]
) -> None:
    expected = function(*clusters())
    with mode():
        inside = clusters()
        assert torch.equal(function(*inside), expected)
    assert torch.equal(function(*inside), expected)  # tensors of inference mode outside of it


@pytest.mark.parametrize("function", WITH_LABELS)
def test_classes_without_a_row_have_a_column(function: Function) -> None:
    train, labels, test = clusters()
    assert function(train, 3 * labels, test).argmax(dim=1).tolist()[:5] == [0, 3, 6, 9, 12]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_test_row_gives_no_scores(function: Function) -> None:
    train, labels, test = clusters()
    assert function(train, labels, test[:0]).shape == (0, 5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_row_that_is_not_finite_is_named(function: Function, value: float) -> None:
    train, labels, test = clusters()
    bad = train.clone()
    bad[7, 3] = value
    with pytest.raises(
        NotFiniteError, match=r"row 7 of train .*infinite or not a number, out of 50"
    ):
        function(bad, labels, test)
    with pytest.raises(NotFiniteError, match="row 7 of train"):
        function(bad.numpy(), labels, test)
    queries = test.clone()
    queries[[2, 4]] = value
    with pytest.raises(NotFiniteError, match=r"row 2 of test .* 1 other rows, out of 9"):
        function(train, labels, queries)


def test_finite_rows_may_have_an_infinite_sum() -> None:
    require_finite(torch.full((4, 6), 3e38), str, "")


def test_value_beyond_float32_is_named() -> None:
    train, labels, test = (part.double() for part in clusters())
    train[3] *= 1e300
    for function in FUNCTIONS:
        with pytest.raises(NotFiniteError, match="row 3 of train"):
            function(train, labels.long(), test)


def changed(index: int, change: Callable[[Tensor], Any]) -> tuple[Any, Any, Any]:
    parts: list[Any] = list(clusters())
    parts[index] = change(parts[index])
    return parts[0], parts[1], parts[2]


WRONG: dict[str, tuple[tuple[Any, Any, Any], str]] = {
    "flat train": (changed(0, Tensor.flatten), r"train is \(300,\); expected features \(n, C\)"),
    "maps": (changed(0, lambda t: t[..., None, None]), r"train is \(50, 6, 1, 1\)"),
    "one query": (changed(2, lambda t: t[0]), r"test is \(6,\)"),
    "other width": (changed(2, lambda t: t[:, :5]), "train has 6 features .* test has 5"),
    "zero width": (changed(0, lambda t: t[:, :0]), r"train is \(50, 0\)"),
    "list": (changed(0, Tensor.tolist), "train is a list; expected a tensor or an array"),
    "complex": (changed(0, lambda t: t.to(torch.complex64)), "train is a tensor of .*complex64"),
    "empty": ((torch.ones(0, 6), torch.zeros(0, dtype=torch.long), torch.ones(1, 6)), "no rows"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("function", WITH_LABELS)
def test_wrong_features_are_named(function: Function, what: str) -> None:
    parts, expected = WRONG[what]
    with pytest.raises(FeatureError, match=expected):
        function(*parts)


@pytest.mark.parametrize("what", sorted(set(WRONG) - {"empty"}))
def test_svm_names_wrong_features(what: str) -> None:
    (train, labels, test), expected = WRONG[what]
    with pytest.raises(FeatureError, match=expected):
        svm(train, one_hot(labels), test)


LABELS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "negative": (lambda t: t - 1, "label 0 is -1; expected .* from 0"),
    "floats": (Tensor.float, r"labels are \(50,\) of torch.float32; expected integers"),
    "one-hot": (one_hot, r"labels are \(50, 5\) of torch.int64; expected integers \(n,\)"),
    "too few": (lambda t: t[:49], "labels: 49 rows, but train has 50"),
    "list": (Tensor.tolist, "labels is a list"),
}


@pytest.mark.parametrize("what", LABELS)
@pytest.mark.parametrize("function", WITH_LABELS)
def test_wrong_labels_are_named(function: Function, what: str) -> None:
    change, expected = LABELS[what]
    with pytest.raises(FeatureError, match=expected):
        function(*changed(1, change))


def minus_one(labels: Tensor) -> Tensor:
    return 2 * one_hot(labels) - 1


POSITIVE: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "labels": (lambda labels: labels.numpy(), r"positive is \(50,\); expected \(n, L\)"),
    "signs": (minus_one, "positive has values from -1 to 1; expected bool, or 0 and 1"),
    "too few": (lambda labels: one_hot(labels)[:49], "positive: 49 rows, but train has 50"),
    "no class": (lambda labels: one_hot(labels)[:, :0], r"positive is \(50, 0\)"),
}


@pytest.mark.parametrize("what", POSITIVE)
def test_svm_names_wrong_positives(what: str) -> None:
    change, expected = POSITIVE[what]
    with pytest.raises(FeatureError, match=expected):
        machines(*changed(1, change))


def test_svm_takes_bool_and_integers_and_classes_of_one_side() -> None:
    train, labels, test = clusters()
    expected = svm(train, one_hot(labels).bool(), test)
    assert torch.equal(svm(train, one_hot(labels).numpy(), test), expected)
    one_sided = torch.cat([one_hot(labels), torch.zeros(50, 1), torch.ones(50, 1)], dim=1)
    scores = svm(train, one_sided, test)
    assert_equal_up_to_rounding(scores[:, :5], expected)
    assert (scores[:, 5] < scores[:, 6]).all()


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda *parts: knn(*parts), "num_neighbors is 200; expected 1 to 50"),
        (lambda *parts: knn(*parts, num_neighbors=0), "num_neighbors is 0"),
        (lambda *parts: knn(*parts, num_neighbors=5, temperature=0), "temperature is 0"),
        (lambda *parts: knn(*parts, num_neighbors=5, temperature=0.01), "fit into float32"),
        (lambda *parts: linear_probe(*parts, learning_rate=-1), "learning_rate is -1"),
        (lambda *parts: linear_probe(*parts, epochs=0), "epochs is 0"),
        (lambda *parts: linear_probe(*parts, batch_size=0), "batch_size is 0"),
        (
            lambda a, b, c: linear_probe(1e30 * a, b, c, learning_rate=1e20),
            "diverged at learning rate 1e.20",
        ),
        (lambda a, b, c: svm(a, one_hot(b), c, cost=0), "cost is 0"),
    ],
)
def test_wrong_settings_are_named(call: Function, expected: str) -> None:
    with pytest.raises(SuiteError, match=expected):
        call(*clusters())


def test_votes_at_the_lowest_temperature_are_finite() -> None:
    equal, labels = torch.ones(200, 3), torch.zeros(200, dtype=torch.long)
    assert knn(equal, labels, equal[:1], temperature=0.012).isfinite().all()
