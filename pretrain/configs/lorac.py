"""Settings of LORAC."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class LORACConfig:
    """Settings of LORAC; the defaults are the paper's for ImageNet-1k."""

    prior: Literal["laplace", "gaussian", "margin", "batch", "none"] = "laplace"
    """h, a function of the nuclear norm of each image's Q (eq. 11, table V), of the batch's P
    (eq. 15), or constant; "none" is MoCo-M."""
    prior_from: float = 0.5
    """Share of the run after which the prior acts; until then beta is infinite."""
    beta: float = 4.0
    """Beta, width of the Laplace, margin and batch-wise priors."""
    gaussian_center: float = math.sqrt(5)
    """c_o, a nuclear norm; the paper's is the square root of the number of rows of Q."""
    gaussian_variance: float = 2.0
    """Sigma^2 of the Gaussian prior."""
    margin: float = 3.0
    """c of the margin, a nuclear norm."""
    batch_scope: Literal["local", "global"] = "local"
    """Images of the batch-wise prior: those of a process or of all."""
    temperature: float = 0.2
    """Tau, divides cosine similarities and the exponent of the prior."""
    legacy_untempered: bool = False
    """Temperature 1 as soon as the prior acts, a slip of the released code; the paper keeps tau."""
    num_large_views: int = 3
    """Views of the recipe's large size."""
    num_small_views: int = 5
    """Views of the small size, all of them queries."""
    num_keys: int = 2
    """Number of key views. Several: the first large views are both keys and queries. One: the last
    large view is the key and no query (figure 4(b), M = num_large_views)."""
    q_rows: Literal["large_and_keys", "per_key", "all_views"] = "large_and_keys"
    """Rows of Q: large queries and all keys (released code); a key and the large queries of other
    views than the key's (eq. 12); or all queries and all keys."""
    queue_size: int = 65_536
    """K, keys of each of num_keys queues; the paper names one queue, its code has two."""
    momentum: float = 0.999
    """Rate of the momentum encoder, per step."""
    embedding_dim: int = 128
    """d."""
    bn_splits: int = 1
    """Groups of key images in one process, each with its own batch-norm statistics."""
