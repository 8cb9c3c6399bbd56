"""Many linear SVMs on the same images, one per class, fold and cost, solved as one batch.

One problem is a class in a fold at a cost C: squared hinge, L2-regularized including the bias,
1/2 |w|^2 + C sum_i c_i max(0, 1 - y_i w'x_i)^2 with x_i = (features of image i, 1). This is the
objective of scikit-learn's LinearSVC (LIBLINEAR: Fan et al., JMLR 2008), which is the reference.
"""

import warnings
from dataclasses import dataclass

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from torch import Tensor

NEWTON_STEPS = 200
CG_STEPS = 500
CG_REDUCTION = 0.1  # of the residual: a more exact Newton step is hardly a better one
LINE_SEARCH_STEPS = 40
LINE_SEARCH_REDUCTION = 1e-6  # of the slope; exact, as no step needs a product with the images
LEAST_SHARE = 0.01
LIBLINEAR_TOLERANCE = 1e-4
LIBLINEAR_STEPS = 2000


@dataclass(frozen=True, kw_only=True, eq=False)
class Problems:
    """P binary problems on the same n images."""

    positive: Tensor
    """(P, n) bool."""
    trained_on: Tensor
    """(P, n) bool; the other images are held out."""
    positive_weight: float
    """Weight c_i of a positive image; it is 1 for a negative one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Solution:
    """One separating plane per problem."""

    weights: Tensor
    """(P, C + 1) float64 on the CPU, the bias last."""
    converged: Tensor
    """(P,) bool on the CPU."""

    def scores(self, features: Tensor) -> Tensor:
        """Return w'x (n, P) for features (n, C), float64 on the CPU: distances times |w|."""
        return features.cpu().double() @ self.weights[:, :-1].T + self.weights[:, -1]


@dataclass(frozen=True, kw_only=True, eq=False)
class Eigenbasis:
    """The images in the eigenbasis of X'X, where a diagonal matrix preconditions every problem."""

    images: Tensor
    """(n, r) = X @ axes, the bias column included; r = min(n, C + 1)."""
    axes: Tensor
    """(C + 1, r) float64, orthonormal columns."""
    eigenvalues: Tensor
    """(r,) float64, of X'X."""


def eigenbasis(features: Tensor) -> Eigenbasis:
    """Rotate features (n, C) and their bias column, in float64; the images keep their dtype."""
    ones = features.new_ones(len(features), 1)
    images = torch.cat([features, ones], dim=1).double()
    if images.shape[0] < images.shape[1]:
        span, coordinates = torch.linalg.qr(images.T)  # n x n instead of C x C
        eigenvalues, turn = torch.linalg.eigh(coordinates @ coordinates.T)
        axes = span @ turn
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

    costs (P,): the problems' C. start (P, C + 1): for instance the solution at a lower cost. The
    stopping rule is LIBLINEAR's for the primal: the gradient's norm is at most `tolerance` times
    that at w = 0 times the share of the rarer side, because the common side dominates the gradient
    at w = 0. Products with the images have the dtype of the images, all else is float64.
    """
    images = basis.images
    positive = problems.positive.to(images.device)
    sign = torch.where(positive, 1.0, -1.0).double()
    pull = torch.where(positive, problems.positive_weight, 1.0).double()
    pull *= problems.trained_on.to(images.device) * (2 * costs.to(images.device)[:, None])
    point = torch.zeros(len(costs), images.shape[1], dtype=torch.float64, device=images.device)
    if start is not None:
        point = start.to(images.device) @ basis.axes
    margin = sign * product(point, images.T)
    goal = product(pull * sign, images).norm(dim=1)
    goal *= tolerance * rarer_share(problems).to(images.device)
    todo = torch.arange(len(costs), device=images.device)
    for _ in range(NEWTON_STEPS):
        slack = (1 - margin[todo]).clamp(min=0)
        gradient = point[todo] - product(pull[todo] * slack * sign[todo], images)
        steep = gradient.norm(dim=1) > goal[todo]
        todo = todo[steep]
        if len(todo) == 0:
            break
        curvature = pull[todo] * (slack[steep] > 0)
        direction, change = newton_direction(basis, curvature, gradient[steep])
        change *= sign[todo]
        length = line_search(point[todo], direction, margin[todo], change, pull[todo])
        point[todo] += length * direction
        margin[todo] += length * change
    converged = torch.ones(len(costs), dtype=torch.bool)
    converged[todo.cpu()] = False
    return Solution(weights=(point @ basis.axes.T).cpu(), converged=converged)


def rarer_share(problems: Problems) -> Tensor:
    """Return the share (P,) float64 of training images on the rarer side of each problem.

    It is at least LEAST_SHARE: float32 products could not reach a smaller goal.
    """
    positive = (problems.positive & problems.trained_on).double().sum(dim=1)
    total = problems.trained_on.double().sum(dim=1)
    return (torch.minimum(positive, total - positive) / total).clamp(min=LEAST_SHARE)


def newton_direction(
    basis: Eigenbasis, curvature: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Return -H^-1 gradient by preconditioned conjugate gradients, and its product with the images.

    curvature (P, n), gradient (P, r); H = I + X' diag(curvature) X. The preconditioner replaces the
    images' curvatures by their mean, which makes H diagonal in this basis.
    """
    mean_curvature = curvature.mean(dim=1, keepdim=True)
    inverse = 1 / (1 + mean_curvature * basis.eigenvalues)
    direction, change = torch.zeros_like(gradient), torch.zeros_like(curvature)
    todo = torch.arange(len(gradient), device=gradient.device)
    goal = CG_REDUCTION * gradient.norm(dim=1)
    residual = -gradient
    conjugate = inverse * residual
    energy = (residual * conjugate).sum(dim=1, keepdim=True)
    for _ in range(CG_STEPS):
        seen = product(conjugate, basis.images.T)
        bent = conjugate + product(curvature * seen, basis.images)
        length = energy / (conjugate * bent).sum(dim=1, keepdim=True)
        direction[todo] += length * conjugate
        change[todo] += length * seen
        residual = residual - length * bent
        rough = residual.norm(dim=1) > goal
        if not rough.any():
            break
        if not rough.all():  # solved problems are dropped, to save their products
            todo, goal, energy = todo[rough], goal[rough], energy[rough]
            residual, conjugate = residual[rough], conjugate[rough]
            curvature, inverse = curvature[rough], inverse[rough]
        scaled = inverse * residual
        before, energy = energy, (residual * scaled).sum(dim=1, keepdim=True)
        conjugate = scaled + energy / before * conjugate
    return direction, change


def line_search(
    point: Tensor, direction: Tensor, margin: Tensor, change: Tensor, pull: Tensor
) -> Tensor:
    """Return step lengths (P, 1) to the minima of the objectives along the directions.

    point, direction (P, r); margin, change, pull (P, n): y_i w'x_i, its change, and 2 C c_i. The
    slope is piecewise linear and rising. Newton's method finds its zero; a step that leaves the
    bracket is replaced by bisection.
    """
    linear = (point * direction).sum(dim=1, keepdim=True)
    quadratic = direction.square().sum(dim=1, keepdim=True)
    low, high = torch.zeros_like(linear), torch.full_like(linear, torch.inf)
    length = torch.ones_like(linear)
    goal = (
        LINE_SEARCH_REDUCTION
        * (linear - (pull * (1 - margin).clamp(min=0) * change).sum(dim=1, keepdim=True)).abs()
    )
    for _ in range(LINE_SEARCH_STEPS):
        slack = (1 - margin - length * change).clamp(min=0)
        force = pull * change
        slope = linear + length * quadratic - (force * slack).sum(dim=1, keepdim=True)
        flat = slope.abs() <= goal
        if flat.all():
            break
        low, high = torch.where(slope < 0, length, low), torch.where(slope > 0, length, high)
        bend = quadratic + (force * change * (slack > 0)).sum(dim=1, keepdim=True)
        newton = length - slope / bend
        inside = (newton > low) & (newton < high)
        length = torch.where(flat, length, torch.where(inside, newton, (low + high) / 2))
    return length


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return left (P, a) times right (a, b), computed in the dtype of right, in that of left."""
    return (left.to(right.dtype) @ right).to(left.dtype)


def solve_scikit_learn(
    features: Tensor, problems: Problems, costs: Tensor, start: Tensor | None = None
) -> Solution:
    """Solve each problem with scikit-learn's LinearSVC, the reference: dual, with class weights.

    features (n, C), costs (P,). LIBLINEAR has no warm start, so `start` is ignored.
    """
    images, weights, converged = features.double().numpy(), [], []
    for positive, trained_on, cost in zip(
        problems.positive.numpy(), problems.trained_on.numpy(), costs.tolist(), strict=True
    ):
        machine = LinearSVC(
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
            machine.fit(images[trained_on], positive[trained_on])
        plane = [*machine.coef_[0], *machine.intercept_]
        weights.append(torch.tensor(plane, dtype=torch.float64))
        converged.append(machine.n_iter_ < LIBLINEAR_STEPS)
    return Solution(weights=torch.stack(weights), converged=torch.tensor(converged))
