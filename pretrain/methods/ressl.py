"""ReSSL: strong views should relate to past images like weak views.

Zheng et al., NeurIPS 2021, arXiv:2107.09282, as in the authors' code. A momentum encoder embeds the
weak view.
"""

from torch import Tensor, nn

from pretrain.method import Method
from pretrain.parts.heads import mlp
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.parts.queue import KeyQueue, expected_key, queue_logsumexp
from pretrain.parts.view import View
from pretrain.recipes.ressl import ReSSLConfig


def relation_loss(
    student: Tensor,
    teacher: Tensor,
    queue: Tensor,
    *,
    temperature: float,
    target_temperature: float,
) -> Tensor:
    """Return the cross entropy of two softmaxes over the queue, in nats.

    student (n, d), teacher (n, d), queue (K, d), rows of unit length. The target is the softmax of
    the teacher's similarities divided by target_temperature. The loss is averaged over the batch,
    and computed in float32, also under autocast. Only the student gets a gradient.
    """
    expected = expected_key(teacher, queue, temperature=target_temperature)
    similarity = (student.float() * expected).sum(dim=1) / temperature
    return (queue_logsumexp(student, queue, temperature=temperature) - similarity).mean()


class ReSSL(Method):
    """An encoder for strong views, a momentum encoder for weak views.

    The queue contains the momentum encoder's keys.
    """

    batch_settings = ("bn_splits", "queue_size")

    def __init__(self, backbone: nn.Module, feature_dim: int, config: ReSSLConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(), View(without=("color", "blur", "solarize")))
        projector = mlp(feature_dim, config.hidden_dim, config.embedding_dim)
        self.set_encoder(backbone, projector)
        self.teacher = MomentumEncoder(self.encoder, config.momentum)
        self.queue = KeyQueue(config.queue_size, config.embedding_dim)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of a strong and a weak view.

        views (n, 3, H, W). progress has no effect.
        """
        config = self.config
        query, keys = self.teacher.query_and_keys(self.encoder, views, config.bn_splits)
        key = keys[:, 0]
        loss = relation_loss(
            query,
            key,
            self.queue.keys,
            temperature=config.temperature,
            target_temperature=config.target_temperature,
        )
        self.queue.push(key)  # after the loss, so that an image is not related to itself
        return {"loss": loss, "view_cosine": (query.detach() * key).sum(dim=1).mean()}
