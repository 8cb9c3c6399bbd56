"""Linear SVMs on the same images, solved as one batch.

A problem is a class in a fold at a cost C. The loss is the squared hinge, L2-regularized with the
bias: 1/2 |w|^2 + C sum_i c_i max(0, 1 - y_i w'x_i)^2 with x_i = (features of image i, 1). This is
the objective of scikit-learn's LinearSVC (LIBLINEAR: Fan et al., JMLR 2008), which is the
reference.
"""

import warnings
from dataclasses import dataclass

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from torch import Tensor

NEWTON_STEPS = 200
CG_STEPS = 500
CG_REDUCTION = 0.1  # of the residual; a larger reduction hardly improves the Newton step
LINE_SEARCH_STEPS = 40
LINE_SEARCH_REDUCTION = 1e-6  # of the slope; small, since steps of the search are cheap
MIN_FRACTION = 0.01
LIBLINEAR_TOLERANCE = 1e-4
LIBLINEAR_STEPS = 2000


@dataclass(frozen=True, kw_only=True, eq=False)
class Problems:
    """P binary problems on the same n images."""

    positive: Tensor
    """(P, n) bool."""
    trained_on: Tensor
    """(P, n) bool; other images are held out."""
    positive_weight: float
    """Weight c_i of positive images; negative images have weight 1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Solution:
    """The separating hyperplane of each problem."""

    weights: Tensor
    """(P, C + 1) float64 on the CPU, the bias last."""
    converged: Tensor
    """(P,) bool on the CPU."""

    def scores(self, features: Tensor) -> Tensor:
        """Return w'x (n, P) for features (n, C), float64 on the CPU."""
        return features.cpu().double() @ self.weights[:, :-1].T + self.weights[:, -1]


@dataclass(frozen=True, kw_only=True, eq=False)
class Eigenbasis:
    """Images in the eigenbasis of X'X, in which the preconditioner is diagonal."""

    images: Tensor
    """(n, r): X @ axes, with bias column; r = min(n, C+1)."""
    axes: Tensor
    """(C + 1, r) float64, orthonormal columns."""
    eigenvalues: Tensor
    """(r,) float64, of X'X."""


def eigenbasis(features: Tensor) -> Eigenbasis:
    """Rotate features (n, C) and a bias column into the eigenbasis.

    Computed in float64; the rotated images have the dtype of the features.
    """
    ones = features.new_ones(len(features), 1)
    images = torch.cat([features, ones], dim=1).double()
    if images.shape[0] < images.shape[1]:
        span, coordinates = torch.linalg.qr(images.T)  # n x n instead of C x C
        eigenvalues, rotation = torch.linalg.eigh(coordinates @ coordinates.T)
        axes = span @ rotation
    else:
        eigenvalues, axes = torch.linalg.eigh(images.T @ images)
    return Eigenbasis(
        images=(images @ axes).to(features.dtype),
        axes=axes,
        eigenvalues=eigenvalues.clamp(min=0),
    )


def solve_batched(
    basis: Eigenbasis,
    problems: Problems,
    costs: Tensor,
    start: Tensor | None = None,
    *,
    tolerance: float,
) -> Solution:
    """Solve all problems at once by truncated Newton with exact line search.

    costs (P,): C of each problem. start (P, C + 1): initial weights, such as the solution at a
    lower cost.

    The stopping rule is LIBLINEAR's for the primal problem. The norm of the gradient must be at
    most `tolerance * fraction` times its norm at w = 0, with the fraction of the rarer class.
    Without the fraction, the common class would dominate the gradient at w = 0. Products with the
    images have the dtype of the images; all other computations use float64.
    """
    images = basis.images
    positive = problems.positive.to(images.device)
    sign = torch.where(positive, 1.0, -1.0).double()
    weight = torch.where(positive, problems.positive_weight, 1.0).double()
    weight *= problems.trained_on.to(images.device) * (2 * costs.to(images.device)[:, None])
    point = torch.zeros(len(costs), images.shape[1], dtype=torch.float64, device=images.device)
    if start is not None:
        point = start.to(images.device) @ basis.axes
    margin = sign * product(point, images.T)
    max_norm = product(weight * sign, images).norm(dim=1)
    max_norm *= tolerance * rarer_fraction(problems).to(images.device)
    unsolved = torch.arange(len(costs), device=images.device)
    for _ in range(NEWTON_STEPS):
        slack = (1 - margin[unsolved]).clamp(min=0)
        gradient = point[unsolved] - product(weight[unsolved] * slack * sign[unsolved], images)
        is_unsolved = gradient.norm(dim=1) > max_norm[unsolved]
        unsolved = unsolved[is_unsolved]
        if len(unsolved) == 0:
            break
        curvature = weight[unsolved] * (slack[is_unsolved] > 0)
        direction, change = newton_direction(basis, curvature, gradient[is_unsolved])
        change *= sign[unsolved]
        length = line_search(point[unsolved], direction, margin[unsolved], change, weight[unsolved])
        point[unsolved] += length * direction
        margin[unsolved] += length * change
    converged = torch.ones(len(costs), dtype=torch.bool)
    converged[unsolved.cpu()] = False
    return Solution(weights=(point @ basis.axes.T).cpu(), converged=converged)


def rarer_fraction(problems: Problems) -> Tensor:
    """Return the fraction (P,) float64 of training images in the rarer class.

    It is at least MIN_FRACTION, since float32 products cannot reach a smaller gradient.
    """
    positive = (problems.positive & problems.trained_on).double().sum(dim=1)
    total = problems.trained_on.double().sum(dim=1)
    return (torch.minimum(positive, total - positive) / total).clamp(min=MIN_FRACTION)


def newton_direction(
    basis: Eigenbasis, curvature: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the Newton direction -H^-1 gradient, and its product with the images.

    curvature (P, n), gradient (P, r); H = I + X' diag(curvature) X. It is computed by conjugate
    gradients. The preconditioner is H with the mean curvature instead of each image's, which is
    diagonal in this basis.
    """
    mean_curvature = curvature.mean(dim=1, keepdim=True)
    inverse = 1 / (1 + mean_curvature * basis.eigenvalues)
    direction, change = torch.zeros_like(gradient), torch.zeros_like(curvature)
    unsolved = torch.arange(len(gradient), device=gradient.device)
    max_norm = CG_REDUCTION * gradient.norm(dim=1)
    residual = -gradient
    conjugate = inverse * residual
    energy = (residual * conjugate).sum(dim=1, keepdim=True)
    for _ in range(CG_STEPS):
        image_product = product(conjugate, basis.images.T)
        hessian_product = conjugate + product(curvature * image_product, basis.images)
        length = energy / (conjugate * hessian_product).sum(dim=1, keepdim=True)
        direction[unsolved] += length * conjugate
        change[unsolved] += length * image_product
        residual = residual - length * hessian_product
        is_unsolved = residual.norm(dim=1) > max_norm
        if not is_unsolved.any():
            break
        if not is_unsolved.all():  # drop solved problems to save products
            unsolved, max_norm, energy, residual, conjugate, curvature, inverse = (
                rows[is_unsolved]
                for rows in (unsolved, max_norm, energy, residual, conjugate, curvature, inverse)
            )
        scaled = inverse * residual
        previous_energy, energy = energy, (residual * scaled).sum(dim=1, keepdim=True)
        conjugate = scaled + energy / previous_energy * conjugate
    return direction, change


def line_search(
    point: Tensor, direction: Tensor, margin: Tensor, change: Tensor, weight: Tensor
) -> Tensor:
    """Return step lengths (P, 1) to the minima along the directions.

    point, direction (P, r). margin, change, weight (P, n): y_i w'x_i, its change along the
    direction, and 2 C c_i. The slope of the objective is piecewise linear and increasing. Newton's
    method finds its zero; a step that leaves the bracket is replaced by a bisection.
    """
    linear = (point * direction).sum(dim=1, keepdim=True)
    quadratic = direction.square().sum(dim=1, keepdim=True)
    low, high = torch.zeros_like(linear), torch.full_like(linear, torch.inf)
    length = torch.ones_like(linear)
    loss_slope = (weight * (1 - margin).clamp(min=0) * change).sum(dim=1, keepdim=True)
    max_slope = LINE_SEARCH_REDUCTION * (linear - loss_slope).abs()
    for _ in range(LINE_SEARCH_STEPS):
        slack = (1 - margin - length * change).clamp(min=0)
        force = weight * change
        slope = linear + length * quadratic - (force * slack).sum(dim=1, keepdim=True)
        is_solved = slope.abs() <= max_slope
        if is_solved.all():
            break
        low, high = torch.where(slope < 0, length, low), torch.where(slope > 0, length, high)
        curvature = quadratic + (force * change * (slack > 0)).sum(dim=1, keepdim=True)
        newton = length - slope / curvature
        in_bracket = (newton > low) & (newton < high)
        length = torch.where(is_solved, length, torch.where(in_bracket, newton, (low + high) / 2))
    return length


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right in the dtype of left.

    The product is computed in the dtype of right.
    """
    return (left.to(right.dtype) @ right).to(left.dtype)


def solve_scikit_learn(
    features: Tensor, problems: Problems, costs: Tensor, start: Tensor | None = None
) -> Solution:
    """Solve each problem with scikit-learn's LinearSVC, the reference.

    features (n, C), costs (P,). LIBLINEAR solves the dual problem and has no warm start, so `start`
    is ignored.
    """
    images, weights, converged = features.double().numpy(), [], []
    for positive, trained_on, cost in zip(
        problems.positive.numpy(), problems.trained_on.numpy(), costs.tolist(), strict=True
    ):
        classifier = LinearSVC(
            penalty="l2",
            loss="squared_hinge",
            dual=True,
            C=cost,
            class_weight={True: problems.positive_weight, False: 1.0},
            intercept_scaling=1.0,
            tol=LIBLINEAR_TOLERANCE,
            max_iter=LIBLINEAR_STEPS,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # reported by `converged`
            classifier.fit(images[trained_on], positive[trained_on])
        plane = [*classifier.coef_[0], *classifier.intercept_]
        weights.append(torch.tensor(plane, dtype=torch.float64))
        converged.append(classifier.n_iter_ < LIBLINEAR_STEPS)
    return Solution(weights=torch.stack(weights), converged=torch.tensor(converged))
