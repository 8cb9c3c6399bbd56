import torch

from pretrain.parts.queue import KeyQueue


def test_queue_starts_as_noise_of_unit_length() -> None:
    torch.testing.assert_close(KeyQueue(10, 4).keys.norm(dim=1), torch.ones(10))


def test_pushes_wrap_when_the_batch_does_not_divide_the_queue() -> None:
    queue = KeyQueue(5, 1)
    for start in range(0, 12, 3):
        queue.push(torch.arange(start, start + 3.0)[:, None])
    # 12 keys in a ring of five: the last five, in the places they fell on
    assert queue.keys.flatten().tolist() == [10.0, 11.0, 7.0, 8.0, 9.0]
    assert queue.position.item() == 2


def test_a_loaded_queue_goes_on_at_its_position() -> None:
    queue, copy = KeyQueue(5, 1), KeyQueue(5, 1)
    queue.push(torch.ones(3, 1))
    copy.load_state_dict(queue.state_dict())
    for ring in (queue, copy):
        ring.push(torch.full((3, 1), 2.0))
    assert torch.equal(queue.keys, copy.keys)
