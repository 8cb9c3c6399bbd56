"""ReSSL's loss against two explicit softmaxes: Zheng et al., arXiv:2107.09282."""

import torch
from torch.nn.functional import normalize

from pretrain.methods.ressl import ReSSL, relation_loss
from tests.rounding import SHORT_CHAIN, assert_equal_up_to_rounding
from tests.tiny_methods import tiny_batch, tiny_method


def test_loss_and_gradient_are_those_of_softmaxes_in_memory() -> None:
    generator = torch.Generator().manual_seed(0)
    student, teacher = normalize(torch.randn(2, 6, 8, generator=generator), dim=2)
    queue = normalize(torch.randn(9_000, 8, generator=generator), dim=1)  # more than two blocks
    simple, streamed = (student.clone().requires_grad_() for _ in range(2))
    target = (teacher @ queue.T / 0.04).softmax(dim=1)
    expected = -(target * (simple @ queue.T / 0.1).log_softmax(dim=1)).sum(dim=1).mean()
    expected.backward()
    loss = relation_loss(streamed, teacher, queue, temperature=0.1, target_temperature=0.04)
    loss.backward()
    assert_equal_up_to_rounding(loss, expected, magnitude=1 / 0.04, operations=SHORT_CHAIN)
    assert simple.grad is not None
    assert streamed.grad is not None
    assert_equal_up_to_rounding(
        streamed.grad, simple.grad, magnitude=1 / 0.1 / 0.04, operations=SHORT_CHAIN
    )


def test_the_teacher_sees_the_weak_view_and_the_queue_keeps_its_keys() -> None:
    method: ReSSL = tiny_method("ressl")
    batch = tiny_batch(method)
    assert method.views[0].without == ()
    assert set(method.views[1].without) == {"color", "blur", "solarize"}
    seen = []
    method.teacher.register_forward_hook(lambda _, inputs, keys: seen.append((*inputs, keys)))
    before = method.queue.keys.clone()
    method(batch.views, 0.0)
    assert sum(len(images) for images, _ in seen) == len(batch.views[1])
    changed = (method.queue.keys != before).any(dim=1)
    assert int(changed.sum()) == len(batch.views[0])
