"""Arrays that travel to a device in one buffer."""

import numpy as np
import torch

from pretrain.data.side_stream import Array, pack, unpack

ARRAYS: list[Array] = [
    np.arange(5),
    np.array([[0.1, 0.2, 0.3]], dtype=np.float32),
    np.zeros((0, 4), dtype=np.float32),
    np.arange(6).reshape(2, 3).T,  # not contiguous
    np.zeros(0, dtype=np.int64),
    np.array([7], dtype=np.float32),
    np.array([2**40]),
]


def test_arrays_come_back_with_values_types_and_shapes() -> None:
    found = unpack(pack(ARRAYS), torch.device("cpu"))
    for array, tensor in zip(ARRAYS, found, strict=True):
        expected = torch.from_numpy(np.ascontiguousarray(array))
        assert tensor.dtype == expected.dtype
        assert torch.equal(tensor, expected)
