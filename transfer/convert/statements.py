"""Read what a file says of its network: entries of its arguments and configurations, as values.

Names and shapes of tensors do not show padding, pooling, strides and dilations. The entries that
common code bases store beside the tensors often do: `arch` (MoCo, DINO, timm), `maxpool1` and
`first_conv` (Lightning Bolts), `hyper_parameters` (Lightning), the configuration text of OpenMMLab,
and the marks of solo-learn, whose 3x3 stem pads by 2. `heed` then chooses the variant of the
network that tensors and statements agree on.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, NoReturn

from transfer.convert.architectures import BackboneError, Stem
from transfer.convert.matching import Match
from transfer.convert.naming import NAMES

Value = str | int | float


class Statement(NamedTuple):
    """One entry of the file."""

    words: str
    """Keys that lead to the entry, joined by dots, and its value."""
    value: Value
    """Meaning: a depth, True or False, pixels, or the reason why it cannot be built."""


Statements = Mapping[str, Sequence[Statement]]
"""The entries of a file that describe its network, by kind.

depths: numbers of layers, such as 50. large_stem: True for a 7x7 convolution of stride 2, False for
a 3x3 one of stride 1. max_pool: presence of the stem's max-pool. stem_padding: zero-padding of a
3x3 stem in pixels. stride_in_1x1: bottlenecks with their stride in the first convolution, as in
Caffe's weights. unbuildable: other departures from torchvision's ResNet, which the value names.
"""

MAX_TEXT = 100
"""Longest value that can be a network's name."""
MAX_NUMBER = 10**6
"""Largest whole number that describes a network."""
MAX_CONFIG_TEXT = 200_000
"""Longest configuration text that is searched."""

NETWORK_KEYS = frozenset(NAMES["network_keys"])
"""Keys whose value is a network's name."""
PARTS = frozenset(NAMES["network_parts"])
"""Keys of configurations of a network, in which `name` and `depth` describe it."""
ELSEWHERE = re.compile(
    r"transform|augment|resize|crop|layer_?norm|head|neck|decode|aspp|project|predict|optim|schedul|teacher|target|momentum|classifier"
)
"""Pattern of keys whose entries describe another part of the training."""

FLAGS: dict[str, tuple[str, bool]] = {
    key: (kind, meaning)
    for kind, meanings in NAMES["flags"].items()
    for meaning, keys in meanings.items()
    for key in keys
}
"""Keys of flags: the kind of statement, and its value if the flag is true."""
LIGHTNING = "pytorch-lightning_version"
"""Name of the value that Lightning stores in every checkpoint."""

NAME = re.compile(
    r"(?<![a-z0-9])(?:wide)?(?:res[-_ ]?ne(?:t|xt)(?P<blur>aa|blur)?|rn|r)[-_ ]?"
    r"(?P<depth>18|34|50|101|152)(?![0-9])(?P<kind>[cdest](?![a-z0-9]))?"
)
"""Pattern of the names of ResNets, such as resnet50, wide_resnet50_2, ResNet-18, resnetblur50."""
CONFIG_ENTRY = re.compile(
    r"\b(depth|style|dilations|strides)\s?=\s?[\['\"(]?([\w, ]{1,40})(?=[\])'\",\n]|$)"
)
"""Pattern of the plain entries of a network in a configuration's text."""
NORM_CONFIG = re.compile(r"\bnorm_cfg\s?=\s?dict\(([^()]*)\)")
"""Pattern of a configuration of norms in a configuration's text."""
CONFIG_KEY = re.compile(r"(cfg|conf\w*|yaml|args|hparams|opts?)$")
"""Pattern of the keys whose text may be a configuration in YAML."""
DILATED_BODY = re.compile(r"fcn|deeplab|pspnet|dilated|[-_](os|d)(8|16)(?![0-9])")


def read_statements(values: Mapping[str, Value], names: Iterable[str] = ()) -> Statements:
    """Return the statements among the values of a file, by their names in it.

    names: the names of its tensors, which mark a file of solo-learn without hyper-parameters.
    """
    found: defaultdict[str, list[Statement]] = defaultdict(list)
    for key, several in entries_of(values).items():
        *parents, own = key.lower().split(".")
        if any(ELSEWHERE.search(parent) for parent in parents):
            continue
        parent = parents[-1].rpartition(" ")[2] if parents else ""
        for kind, value in _meanings(own, parent, several):
            found[kind].append(Statement(f"{key} {_in_words(several)}", value))
    if "stem_padding" not in found and (padding := _solo_learn_padding(values, names)):
        found["stem_padding"] = [padding]
    return found


def entries_of(values: Mapping[str, Value]) -> dict[str, list[Value]]:
    """Return the values by their keys, those of a list together.

    The names of containers inside configuration objects are left out: the numbers of parts and
    items, and OmegaConf's _content and _val.
    """
    entries: dict[str, list[Value]] = {}
    for name, value in values.items():
        words = [word for word in name.split(".") if not word.isdecimal()]
        key = ".".join(word for word in words if word not in ("_content", "_val"))
        if isinstance(value, str) and "backbone" in value and len(value) <= MAX_CONFIG_TEXT:
            for inner, numbers in _config_entries(value):
                entries.setdefault(f"{key}: backbone.{inner}", []).extend(numbers)
        if isinstance(value, str) and CONFIG_KEY.search(key.lower()):
            for inner, scalar in _yaml_entries(value[:MAX_CONFIG_TEXT]):
                entries.setdefault(f"{key}: {inner}", []).append(scalar)
        if key:
            entries.setdefault(key, []).append(value)
    return entries


def _config_entries(text: str) -> Iterator[tuple[str, list[Value]]]:
    """Yield name and values of the plain entries of `backbone=dict(...)` in a configuration."""
    start = re.search(r"\bbackbone\s*=\s*dict\(", text)
    if start is None:
        return
    depth, end = 1, start.end()
    while depth and end < len(text):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    inside = text[start.end() : end - 1]
    # a text before its variables are resolved names the norms' configuration
    norm = NORM_CONFIG.search(inside) or (
        NORM_CONFIG.search(text) if "norm_cfg=norm_cfg" in inside else None
    )
    if norm and (eps := re.search(r"\beps\s?=\s?([\d.]{1,20}(?:e-?\d{1,3})?)", norm[1], re.I)):
        yield "norm_cfg.eps", [_number(eps[1])]
    for match in CONFIG_ENTRY.finditer(inside):
        items = re.findall(r"\w+", match[2])
        yield match[1], [int(item) if item.isdecimal() else item for item in items]


def _yaml_entries(text: str) -> Iterator[tuple[str, Value]]:
    """Yield key and value of the plain entries of a text in YAML, as detectron2 writes one."""
    parents: list[tuple[int, str]] = []
    for line in re.finditer(r"^( {0,40})(\w{1,60}):(?: ([^\s#].{0,99}))?$", text, re.MULTILINE):
        indent = len(line[1])
        parents = [parent for parent in parents if parent[0] < indent] + [(indent, line[2])]
        if line[3]:
            yield ".".join(name for _, name in parents), _number(line[3].strip("'\""))


def _number(text: str) -> Value:
    """Return the number that a short text spells, or the text."""
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text


def _meanings(own: str, parent: str, values: list[Value]) -> Iterator[tuple[str, Value]]:
    """Yield kind and meaning of the values of one key."""
    value, flag = values[0], _flag(values[0])
    is_eps = own in NAMES["norm_eps"] or (own == "eps" and parent in NAMES["norm_parts"])
    if isinstance(value, str) and (own in NETWORK_KEYS or (own == "name" and parent in PARTS)):
        yield from _name_meanings(value)
    elif own == "depth" and parent in PARTS and isinstance(value, int) and 9 < value < MAX_NUMBER:
        yield "depths", value
    elif own in FLAGS and flag is not None:
        kind, meaning = FLAGS[own]
        yield kind, flag == meaning
    elif own in ("conv1_padding", "first_conv_padding", "stem_padding"):
        if isinstance(value, int) and 0 <= value < MAX_NUMBER:
            yield "stem_padding", value
    elif own in ("output_stride", "outputstride") and value in (8, 16):
        yield "unbuildable", f"an output stride of {value} instead of 32"
    elif own in NAMES["dilation"] and any(
        _flag(one) is True if isinstance(one, bool | str) else one > 1 for one in values
    ):
        yield "unbuildable", "dilated convolutions"
    elif own == "strides" and parent in PARTS and values != [1, 2, 2, 2]:
        yield "unbuildable", "other strides of its stages"
    elif own == "layer4_stride" and value == 1:
        yield "unbuildable", "stride 1 in layer4"
    elif is_eps and isinstance(value, float) and not 0.99e-5 < value < 1.01e-5:
        yield "unbuildable", f"batch norms with an eps of {value:g} instead of 1e-5"
    elif own in ("aa_layer", "anti_aliased", "antialiased", "blurpool"):
        if flag or (isinstance(value, str) and flag is None and value):
            yield "unbuildable", "anti-aliased strides"
    elif (own == "style" and value == "caffe") or (own == "stride_in_1x1" and flag):
        yield "stride_in_1x1", True


def _name_meanings(text: str) -> Iterator[tuple[str, Value]]:
    text = text.lower()
    match = NAME.search(text) if len(text) <= MAX_TEXT else None
    if match is None:
        return
    yield "depths", int(match["depth"])
    if match["blur"]:
        yield "unbuildable", "anti-aliased strides"
    if match["kind"]:
        yield "unbuildable", "another stem or shortcut than the plain network"
    if DILATED_BODY.search(text):
        yield "unbuildable", "dilated convolutions"
    if "caffe" in text:
        yield "stride_in_1x1", True


def _flag(value: Value) -> bool | None:
    """Return the truth that a value states, as a bool, 0 or 1, or in words; None if it is none."""
    if isinstance(value, str):
        return {"true": True, "false": False, "none": False}.get(value.lower())
    return bool(value) if value in (0, 1) else None


def _in_words(values: list[Value]) -> str:
    """Return a short text of the values."""
    words = [str(value) for value in values[:8]]
    return (words[0] if len(values) == 1 else f"({', '.join(words)})")[:MAX_TEXT]


def _solo_learn_padding(values: Mapping[str, Value], names: Iterable[str]) -> Statement | None:
    """Return the padding of solo-learn's stem for CIFAR, if the file is one of solo-learn's."""
    words = {word for name in values for word in name.split(".")}
    marks = sorted(words.intersection(NAMES["solo_learn"]))
    parts = {name.split(".")[1] for name in names if name.startswith("state_dict.")}
    # the backbone stands beside the parts that all of solo-learn's methods have
    has_all = parts & {"backbone", "encoder"} and "classifier" in parts
    trained = parts & {"projector", "momentum_backbone", "momentum_encoder", "momentum_projector"}
    if len(marks) >= 2:
        evidence = f"hyper-parameters of solo-learn ({', '.join(marks[:2])})"
    elif LIGHTNING in values and has_all and trained:
        evidence = f"tensors of solo-learn (classifier, projector) beside {LIGHTNING}"
    else:
        return None
    return Statement(f"{evidence}, whose 3x3 stem pads by 2", 2)


VARIANTS: dict[tuple[bool, bool, int], Stem] = {
    # 7x7 convolution, max-pool, padding
    (True, True, 3): "imagenet",
    (True, False, 3): "imagenet-nopool",
    (False, False, 1): "cifar",
    (False, True, 1): "cifar-maxpool",
    (False, False, 2): "cifar-pad2",
}


def heed(
    chosen: Match, candidates: Iterable[Match], statements: Statements
) -> tuple[Match, tuple[str, ...]]:
    """Return the candidate with the stem that the file states, and notes for people.

    BackboneError if a statement contradicts the tensors, or describes a network that cannot be
    built.
    """
    depths = statements["depths"]
    present = {_depth(candidate) for candidate in (chosen, *candidates)}
    if depths and not present & {statement.value for statement in depths}:
        _refuse(chosen, depths[:1], "which is another network")
    for statement in statements["unbuildable"]:
        _refuse(chosen, (statement,), f"which means {statement.value}")
    if "layer1.0.conv3.weight" in chosen.names:  # a bottleneck
        for statement in statements["stride_in_1x1"]:
            _refuse(chosen, (statement,), "which means that its bottlenecks stride in the 1x1")
    large = chosen.plan.stem == "imagenet"
    for statement in statements["large_stem"]:
        if statement.value != large:
            _refuse(chosen, (statement,), "which is another stem")
    pools = statements["max_pool"]
    pool = _agreed(chosen, pools, usual=large)
    # the padding of a 7x7 kernel is never stated
    paddings = () if large else statements["stem_padding"]
    padding = _agreed(chosen, paddings, usual=3 if large else 1)
    stem = VARIANTS.get((large, bool(pool), padding))
    if stem is None or (pool and "without maxpool" in chosen.plan.scheme):
        _refuse(chosen, (*pools, *paddings), "a stem that its tensors or this suite do not have")
    if stem == chosen.plan.stem:
        return chosen, ()
    said = ", ".join(statement.words for statement in (*pools, *paddings))
    plan = replace(chosen.plan, stem=stem)
    return replace(chosen, plan=plan), (f"{stem} stem, as the file says: {said}",)


def _depth(candidate: Match) -> int:
    """Return the number of layers: one convolution is the stem, and the classifier counts, too."""
    return 2 + sum(bool(re.match(r"layer.*\.conv.*weight$", name)) for name in candidate.names)


def _agreed(chosen: Match, statements: Sequence[Statement], *, usual: int) -> int:
    """Return the value of the statements, `usual` without any; BackboneError if they differ."""
    values = {int(statement.value) for statement in statements}
    if len(values) > 1:
        _refuse(chosen, statements, "and these differ")
    return values.pop() if values else usual


def _refuse(chosen: Match, statements: Sequence[Statement], why: str) -> NoReturn:
    said = ", ".join(statement.words for statement in statements)
    raise BackboneError(
        f"the file says {said}, {why}; by its tensors the network is {chosen}, whose features "
        f"would differ. Use a checkpoint of a plain torchvision ResNet; or, if the entry does not "
        f"describe this network, save its state_dict alone"
    )
