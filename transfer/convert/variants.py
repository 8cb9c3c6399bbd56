"""Choose the variant of a network that its tensors and the file's own statements agree on."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NoReturn

from transfer.convert.architectures import BackboneError, Stem
from transfer.convert.candidates import Candidate
from transfer.convert.statements import Statement, Statements

VARIANTS: dict[tuple[bool, bool, int], Stem] = {
    # 7x7 convolution, max-pool, padding
    (True, True, 3): "imagenet",
    (True, False, 3): "imagenet-nopool",
    (False, False, 1): "cifar",
    (False, True, 1): "cifar-maxpool",
    (False, False, 2): "cifar-pad2",
}


def heed(
    chosen: Candidate, candidates: Iterable[Candidate], statements: Statements
) -> tuple[Candidate, tuple[str, ...]]:
    """Return the candidate with the stem that the file states, and notes for people.

    BackboneError if a statement contradicts the tensors, or describes a network that cannot be
    built.
    """
    _check_depth(chosen, candidates, statements.depths)
    for statement in statements.unbuildable:
        _refuse(chosen, (statement,), f"which means {statement.value}")
    if "layer1.0.conv3.weight" in chosen.names:  # a bottleneck
        for statement in statements.stride_in_1x1:
            _refuse(chosen, (statement,), "which means that its bottlenecks stride in the 1x1")
    large = chosen.stem == "imagenet"
    for statement in statements.large_stem:
        if statement.value != large:
            _refuse(chosen, (statement,), "which is another stem")
    pools = statements.max_pool
    pool = _agreed(chosen, pools, usual=large)
    # the padding of a 7x7 kernel is never stated
    paddings = () if large else statements.stem_padding
    padding = _agreed(chosen, paddings, usual=3 if large else 1)
    stem = VARIANTS.get((large, bool(pool), padding))
    if stem is None or (
        pool and "without" in chosen.scheme.name and "maxpool" in chosen.scheme.name
    ):
        _refuse(chosen, (*pools, *paddings), "a stem that its tensors or this suite do not have")
    if stem == chosen.stem:
        return chosen, ()
    said = ", ".join(map(str, (*pools, *paddings)))
    return replace(chosen, stem=stem), (f"{stem} stem, as the file says: {said}",)


def _check_depth(
    chosen: Candidate, candidates: Iterable[Candidate], depths: tuple[Statement, ...]
) -> None:
    """Raise BackboneError if the file states depths, and none is that of one of its networks."""
    present = {_depth(candidate) for candidate in (chosen, *candidates)}
    if depths and not present & {statement.value for statement in depths}:
        _refuse(chosen, depths[:1], "which is another network")


def _depth(candidate: Candidate) -> int:
    """Return the number of layers: one convolution is the stem, and the classifier counts, too."""
    main = [
        name
        for name in candidate.names
        if name.startswith("layer") and ".conv" in name and name.endswith("weight")
    ]
    return len(main) + 2


def _agreed(chosen: Candidate, statements: tuple[Statement, ...], *, usual: int) -> int:
    """Return the value of the statements, `usual` without any; BackboneError if they differ."""
    values = {int(statement.value) for statement in statements}
    if len(values) > 1:
        _refuse(chosen, statements, "and these differ")
    return values.pop() if values else usual


def _refuse(chosen: Candidate, statements: tuple[Statement, ...], why: str) -> NoReturn:
    raise BackboneError(
        f"the file says {', '.join(map(str, statements))}, {why}; by its tensors the network is "
        f"{chosen}, and evaluated as such its features would differ. Use a checkpoint of a plain "
        f"torchvision ResNet; or, if the entry does not describe this network, save its "
        f"state_dict alone"
    )
