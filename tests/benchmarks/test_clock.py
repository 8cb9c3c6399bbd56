"""Where time goes is counted once, in the innermost part."""

from benchmarks.clock import Clock


def test_a_part_inside_another_is_not_counted_twice() -> None:
    ticks = iter((0.0, 1.0, 3.0, 6.0, 10.0, 15.0))
    clock = Clock("request", now=lambda: next(ticks))
    with clock.during(subject="task", part="training"):  # from 1 to 10
        clock.timed("extraction", lambda: None)()  # from 3 to 6
    clock.stop()
    parts = [("request", "rest"), ("task", "training"), ("task", "extraction")]
    assert [clock.spent[part] for part in parts] == [1 + 5, 2 + 4, 3]
    assert clock.total() == 15.0
