from pretrain.parts.ramp import ramp


def test_a_constant_ramp_is_one_and_a_linear_one_is_the_share_done() -> None:
    assert ramp("constant", 0.3) == 1.0
    assert ramp("linear", 0.3) == 0.3
