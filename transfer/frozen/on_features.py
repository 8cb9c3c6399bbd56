"""Classifiers on features that are in memory, as functions: kNN, linear probe, linear SVM.

They compute what the tasks compute on features of whole images, without data sets and records.
"""

import torch
from torch import Tensor

from transfer.frozen.feature_cache import Features
from transfer.frozen.few_shot_heads import Problem, train_together
from transfer.frozen.linear_svm import Problems, eigenbasis, solve_batched
from transfer.frozen.nearest import knn_scores


def knn(
    train: Tensor,
    labels: Tensor,
    test: Tensor,
    *,
    num_neighbors: int = 200,
    temperature: float = 0.1,
) -> Tensor:
    """Return votes (m, L) of the nearest of train (n, C), labels (n,), for test (m, C).

    A neighbor votes with exp(cosine similarity / temperature): Wu et al., CVPR 2018,
    arXiv:1805.01978. ValueError for fewer than num_neighbors training images.
    """
    return knn_scores(
        Features(train, labels),
        test,
        num_classes=int(labels.max()) + 1,
        num_neighbors=num_neighbors,
        temperature=temperature,
    )


def linear_probe(
    train: Tensor,
    labels: Tensor,
    test: Tensor,
    *,
    learning_rate: float = 1e-3,
    epochs: int = 100,
    batch_size: int = 256,
    seed: int = 0,
) -> Tensor:
    """Return the scores (m, L) of test (m, C) by a linear classifier of train (n, C), labels (n,).

    It is trained by Adam on the cross-entropy; the seed draws initial weights and order.
    """
    batch_size = min(batch_size, len(train))
    weight, bias = train_together(
        Features(train, labels),
        [Problem(torch.arange(len(train)), seed)],
        num_classes=int(labels.max()) + 1,
        iterations=epochs * -(-len(train) // batch_size),
        learning_rate=learning_rate,
        batch_size=batch_size,
    )
    return test @ weight[0].T.cpu() + bias[0].cpu()


def svm(train: Tensor, positive: Tensor, test: Tensor, *, cost: float = 1.0) -> Tensor:
    """Return the scores (m, L) float64 of test (m, C) by a linear SVM per class.

    train (n, C) float; positive (n, L) bool. Each minimizes the objective of LIBLINEAR's L2-loss
    SVM, the bias regularized.
    """
    problems = Problems(
        positive=positive.T.contiguous(),
        trained_on=torch.ones_like(positive.T, dtype=torch.bool),
        positive_weight=1.0,
    )
    costs = torch.full((positive.shape[1],), cost, dtype=torch.float64)
    solution = solve_batched(eigenbasis(train.double()), problems, costs, tolerance=1e-4)
    return solution.scores(test)
