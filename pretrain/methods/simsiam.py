"""SimSiam: predict the other view's embedding, without gradient through it.

Chen & He, CVPR 2021, arXiv:2011.10566.
"""

from torch import Tensor, nn

from pretrain.method import Method
from pretrain.parts.heads import mlp_with_norm
from pretrain.parts.losses import embedding_spread, negative_cosine
from pretrain.recipes.simsiam import SimSiamConfig


def simsiam_loss(p1: Tensor, p2: Tensor, z1: Tensor, z2: Tensor) -> Tensor:
    """Return the symmetric negative cosine (eq. 4): -1 (best) to 1.

    p1, p2 (n, d) are predictions and z1, z2 (n, d) embeddings of two views, of any length. The loss
    is averaged over the batch, and computed in float32, also under autocast. The embeddings get no
    gradient, which prevents collapse.
    """
    return negative_cosine(p1, z2) / 2 + negative_cosine(p2, z1) / 2


class SimSiam(Method):
    """An encoder for both views, and a predictor.

    The predictor's learning rate is constant (section 4.2).
    """

    batch_settings = ("sync_bn",)

    fixed_rate = ("predictor",)

    def __init__(self, backbone: nn.Module, feature_dim: int, config: SimSiamConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.embedding_dim
        projector = mlp_with_norm(
            feature_dim, config.hidden_dim, dim, num_hidden=2, final_norm="fixed"
        )
        predictor = mlp_with_norm(dim, config.predictor_dim, dim, bias=True)
        self.set_encoder(backbone, projector, predictor, sync_bn=config.sync_bn)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of two views (n, 3, H, W).

        progress has no effect.
        """
        # two forward passes, so that each view has separate batch statistics
        z1, z2 = (self.encoder(images) for images in views)
        loss = simsiam_loss(self.predictor(z1), self.predictor(z2), z1, z2)
        return {"loss": loss, "embedding_spread": embedding_spread(z1)}
