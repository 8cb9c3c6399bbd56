"""LooC against its equations, computed differently: Xiao et al., arXiv:2008.05659."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.methods.looc import looc_loss, moco_pp_loss
from pretrain.parts.resnet import BranchedResNet
from pretrain.parts.view import View
from tests.rounding import assert_equal_up_to_rounding
from tests.tiny_methods import tiny_batch, tiny_method


def problem(
    *, num_heads: int = 3, n: int = 5, size: int = 40, dim: int = 8
) -> tuple[Tensor, Tensor, Tensor]:
    """Unit-length queries (h, n, d), keys and queues.

    Keys (h, v, n, d) are close to the queries; queues are (h, K, d).
    """
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(num_heads, n, dim, generator=generator)
    noise = torch.randn(num_heads, num_heads, n, dim, generator=generator)
    queues = torch.randn(num_heads, size, dim, generator=generator)
    keys = queries[:, None] + 0.7 * noise
    return normalize(queries, dim=2), normalize(keys, dim=3), normalize(queues, dim=2)


def naive_loss(queries: Tensor, keys: Tensor, queues: Tensor, temperature: float) -> Tensor:
    """Equation 2, term by term."""
    num_heads, n, _ = queries.shape
    total = queries.new_zeros(())
    for image in range(n):
        for i in range(num_heads):
            query = queries[i, image]
            expected = (query @ keys[i, i, image] / temperature).exp()
            denominator = sum((query @ key / temperature).exp() for key in queues[i])
            for j in range(num_heads) if i > 0 else [0]:
                denominator = denominator + (query @ keys[i, j, image] / temperature).exp()
            total = total - (expected / denominator).log() / num_heads
    return total / n


@pytest.mark.parametrize("num_heads", [1, 2, 4])
def test_loss_and_gradient_equal_the_equation_term_by_term(num_heads: int) -> None:
    queries, keys, queues = problem(num_heads=num_heads)
    fast, slow = queries.clone().requires_grad_(), queries.clone().requires_grad_()
    loss = looc_loss(fast, keys, queues, temperature=0.2)
    expected = naive_loss(slow, keys, queues, 0.2)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected)
    assert_equal_up_to_rounding(fast.grad, slow.grad)


def test_moco_pp_is_the_mean_of_its_heads_info_nce() -> None:
    queries, keys, queues = problem()
    expected = torch.stack(
        [
            looc_loss(queries[i, None], keys[i, 0][None, None], queues[i, None], temperature=0.2)
            for i in range(3)
        ]
    ).mean()
    torch.testing.assert_close(moco_pp_loss(queries, keys[:, 0], queues, temperature=0.2), expected)


def test_key_view_i_copies_designated_augmentation_i_alone() -> None:
    assert tiny_method("mocopp").views == (View(), View())
    method = tiny_method("looc", designated=("color", "rotation"))
    copies = (View(copies=("color",)), View(copies=("rotation",)))
    assert method.views == (View(), View(), *copies)


@pytest.mark.parametrize("name", ["looc", "loocpp", "mocopp"])
def test_queue_i_gets_view_i_of_head_i_after_the_loss(name: str) -> None:
    method = tiny_method(name, norm=nn.Identity)
    views = tiny_batch(method).views
    keys_before = torch.stack([queue.keys for queue in method.queues])
    with torch.no_grad():
        queries = normalize(method.encoder(views[0]), dim=2).transpose(0, 1)
        observed = [normalize(method.key_encoder.network(v), dim=2) for v in views[1:]]
    keys = torch.stack(observed).permute(2, 0, 1, 3)
    num_heads, temperature = len(queries), method.config.temperature
    if name == "mocopp":
        keys = keys[:, 0]
        expected = moco_pp_loss(queries, keys, keys_before, temperature=temperature)
        pushed = list(keys)
    else:
        expected = looc_loss(queries, keys, keys_before, temperature=temperature)
        pushed = [keys[i, i] for i in range(num_heads)]
    logged = method(views, 1.0)
    assert_equal_up_to_rounding(logged["loss"], expected)
    keys_after = torch.stack([queue.keys for queue in method.queues])
    for i in range(num_heads):
        assert_equal_up_to_rounding(keys_after[i, :8], pushed[i])
        assert torch.equal(keys_after[i, 8:], keys_before[i, 8:])
    if name != "mocopp":
        pairs = [(i, j) for i in range(1, num_heads) for j in range(num_heads) if i != j]
        of_others = torch.stack([(queries[i] * keys[i, j]).sum(1) for i, j in pairs]).mean()
        assert_equal_up_to_rounding(logged["same_image_similarity"], of_others, magnitude=1)


@pytest.mark.parametrize("num_designated", [1, 2, 3])
def test_key_views_cost_as_many_last_stages_as_the_loss_reads(num_designated: int) -> None:
    designated = ("color", "rotation", "texture")[:num_designated]
    method = tiny_method("loocpp", designated=designated, bn_splits=1)
    passes = []
    backbone = method.key_encoder.network.get_submodule("backbone")
    assert isinstance(backbone, BranchedResNet)
    for head, branch in enumerate(backbone.layer4):
        branch.register_forward_hook(lambda *_, head=head: passes.append(head))
    method(tiny_batch(method).views, 1.0)
    assert passes.count(0) == 1
    assert len(passes) == 1 + num_designated * (num_designated + 1)


def test_an_augmentation_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="name each once"):
        tiny_method("looc", designated=("color", "color"))
