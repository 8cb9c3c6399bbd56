"""LORAC: contrast several queries per image, with a low-rank prior on embeddings.

Wang et al., 2021, arXiv:2108.02696. Without prior it is MoCo-M, and with one query MoCo.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.method import Method
from pretrain.parts.gather import gather_with_gradient, num_processes
from pretrain.parts.heads import features_by_size, mlp
from pretrain.parts.losses import at_least_float32
from pretrain.parts.momentum_encoder import MomentumEncoder, similarities
from pretrain.parts.queue import key_queues, queue_logsumexp
from pretrain.parts.sync_bn import synchronize_batch_norms
from pretrain.parts.view import View
from pretrain.recipes.lorac import LORACConfig


def nuclear_norm(matrices: Tensor, *, joint: bool = False) -> Tensor:
    """Return the sum of singular values (n,) of matrices (n, M, d).

    float64 for float64 matrices, otherwise float32. The gradient at Q = U S V' is U V'. At zero
    singular values it is the minimum-norm subgradient, so it is always finite. M rows of unit
    length give sqrt(M) if all are equal, and M if they are orthonormal.

    joint: concatenate the rows of all processes. The gradient is summed over processes, as in
    `gather_with_gradient`; only d x d matrices and numbers are communicated.
    """
    num_rows, num_columns = matrices.shape[1:]
    matrices = at_least_float32(matrices)
    # float64, since squaring halves the number of digits: in float32, a zero eigenvalue of the
    # Gram matrix could give a singular value of 1e-3. Autocast does not affect float64
    doubles = matrices.double()
    if joint:
        gram = gather_with_gradient((doubles.mT @ doubles)[None]).sum(dim=0)
    else:
        gram = doubles.mT @ doubles if num_rows > num_columns else doubles @ doubles.mT
    # eigvalsh raises on NaN and infinity; instead, the training loop reports a bad loss
    is_bad = ~gram.sum(dim=(1, 2)).isfinite()
    values = torch.linalg.eigvalsh(gram.masked_fill(is_bad[:, None, None], 0))
    # eigenvalues within rounding errors count as zero, also for the gradient
    rounding = max(torch.finfo(matrices.dtype).eps ** 2, torch.finfo(gram.dtype).eps)
    size = max(num_rows * (num_processes() if joint else 1), num_columns)
    is_nonzero = values > size * rounding * values[:, -1:]
    norms = values.where(is_nonzero, 1).sqrt().where(is_nonzero, 0).sum(dim=1)
    result: Tensor = norms.masked_fill(is_bad, torch.nan).to(matrices.dtype)
    return result


def lorac_loss(
    queries: Tensor, key: Tensor, queue: Tensor, *, temperature: float, log_prior: Tensor
) -> Tensor:
    """Return InfoNCE with a prior for each image (eq. 12, 13).

    queries (V, n, d), key (n, d), queue (K, d), rows of unit length. The log_prior (n,) is log h of
    each image, and may have a gradient; with zeros, the loss is InfoNCE. In nats, averaged over
    queries and images. Computed in float32, also under autocast.
    """
    positive = similarities(queries, key) / temperature + log_prior.float()
    negative = queue_logsumexp(queries.flatten(0, 1), queue, temperature=temperature)
    return (torch.logaddexp(positive, negative.view_as(positive)) - positive).mean()


def norm_log_prior(
    norms: Tensor, config: LORACConfig, *, num_rows: int, temperature: float
) -> Tensor:
    """Return log h, the log prior, of the nuclear norms of matrices.

    Each matrix Q has num_rows (M_Q) rows. The result has the shape of `norms`. The Laplace prior is
    eq. 11. The Gaussian, and the softmax with a constant margin, are from table V.
    """
    match config.prior:
        case "laplace":
            return -norms / (num_rows * config.beta * temperature)
        case "gaussian":
            scale = config.gaussian_variance * num_rows * temperature
            return -(norms - config.gaussian_center).square() / scale
        case "margin":
            return torch.full_like(norms, -config.margin / (num_rows * config.beta * temperature))
    return torch.zeros_like(norms)


def batch_log_prior(
    queries: Tensor, *, beta: float, temperature: float, scope: Literal["local", "global"]
) -> Tensor:
    """Return the log prior (n,) of LORAC-bs, equal for all images.

    It is log h of eq. 15. The rows of its matrix P are the queries (V, n, d) minus the mean query
    of their image. scope: use the images of this process ("local") or of all processes ("global").
    """
    centered = (queries - queries.mean(dim=0)).flatten(0, 1)
    # the paper does not say whether N counts the images of one process or of all
    joint = scope == "global"
    num_rows = len(centered) * (num_processes() if joint else 1)
    mean_norm = nuclear_norm(centered[None], joint=joint) / num_rows
    return (-mean_norm / (beta * temperature)).expand(queries.shape[1])


class LORAC(Method):
    """An encoder, its momentum encoder, and a queue for each key view."""

    batch_settings = ("bn_splits", "queue_size", "local_prior")

    def __init__(self, backbone: nn.Module, feature_dim: int, config: LORACConfig) -> None:
        super().__init__()
        num_large, num_small = config.num_large_views, config.num_small_views
        if config.num_keys > num_large:
            raise ValueError(
                f"{config.num_keys} keys of {num_large} large views: choose at most as many"
            )
        self.config = config
        self.views = (View(),) * num_large + (View(small=True),) * num_small
        single = config.num_keys == 1
        self.key_views = [num_large - 1] if single else list(range(config.num_keys))
        self.query_views = [
            v for v in range(len(self.views)) if not single or v not in self.key_views
        ]
        self.num_large_queries = len(self.query_views) - num_small
        self.set_encoder(backbone, mlp(feature_dim, feature_dim, config.embedding_dim))
        self.key_encoder = MomentumEncoder(self.encoder, config.momentum)
        # after the copy: only the query encoder has synchronous batch norm
        synchronize_batch_norms(self.encoder)
        self.queues = key_queues(len(self.key_views), config.queue_size, config.embedding_dim)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of views (n, 3, H, W), small ones last.

        progress is the fraction of the run.
        """
        config = self.config
        # beta changes from infinite (MoCo-M) to its value in one step, not gradually
        uses_prior = config.prior != "none" and progress > config.prior_from
        temperature = 1.0 if uses_prior and config.legacy_untempered else config.temperature
        self.key_encoder.update(self.encoder)
        key_views = [views[v] for v in self.key_views]
        keys = self.key_encoder.positive_keys(key_views, config.bn_splits).transpose(0, 1)
        query_views = [views[v] for v in self.query_views]
        unit = normalize(features_by_size(self.encoder, query_views).float(), dim=1)
        queries = unit.unflatten(0, (len(query_views), -1))
        matrices = self._matrices(queries, keys)
        # nuclear norms wait for the device: do not compute them for metrics that nobody reads
        if self.metrics_read or (uses_prior and config.prior in {"laplace", "gaussian"}):
            norms = nuclear_norm(matrices.flatten(0, 1)).view(matrices.shape[:2])
        else:
            norms = matrices.new_zeros(matrices.shape[:2])
        if not uses_prior:
            log_priors = torch.zeros_like(norms)
        elif config.prior == "batch":
            large = queries[: self.num_large_queries]
            log_priors = batch_log_prior(
                large, beta=config.beta, temperature=temperature, scope=config.batch_scope
            ).expand_as(norms)
        else:
            num_rows = matrices.shape[2]
            log_priors = norm_log_prior(norms, config, num_rows=num_rows, temperature=temperature)
        log_priors = log_priors.expand(len(keys), -1)
        # averaged over the queries of views other than the key's, by default 7 of 8. Eq. 12 calls
        # this number M - 1, but the M of the prior is the number of rows of Q, by default 5
        losses, positives = [], []
        for index, (key, log_prior) in enumerate(zip(keys, log_priors, strict=True)):
            other_queries = torch.stack(
                self._queries_of_other_views(queries, self.key_views[index])
            )
            # negatives from the other key view's queue, if there are two
            queue = self.queues[(index + 1) % len(keys)].keys
            losses.append(
                lorac_loss(other_queries, key, queue, temperature=temperature, log_prior=log_prior)
            )
            positives.append(similarities(other_queries.detach(), key).mean())
        for key_queue, key in zip(self.queues, keys, strict=True):
            key_queue.push(key)  # after the losses: negatives come from past steps
        return {
            "loss": torch.stack(losses).mean(),
            **({"nuclear_norm": norms.detach().mean()} if self.metrics_read else {}),
            "positive_similarity": torch.stack(positives).mean(),
        }

    def _queries_of_other_views(self, queries: Tensor, key_view: int) -> list[Tensor]:
        """Select queries (n, d) of views other than the key's."""
        return [q for q, v in zip(queries, self.query_views, strict=False) if v != key_view]

    def _matrices(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return Q of each image.

        (1, n, M_Q, d), or (A, n, M_Q, d) if each key has another Q.
        """
        large = queries[: self.num_large_queries]
        match self.config.q_rows:
            case "large_and_keys":
                # small views may be outliers (sections 5 and 6.1). A key's view counts twice, as
                # query and as key, which makes five rows: hence c_o = sqrt(5) in table V
                rows = torch.cat([large, keys])[None]
            case "all_views":
                rows = torch.cat([queries, keys])[None]
            case "per_key":
                pairs = zip(keys, self.key_views, strict=True)
                rows = torch.stack(
                    [
                        torch.stack([*self._queries_of_other_views(large, view), key])
                        for key, view in pairs
                    ]
                )
        return rows.transpose(1, 2)
