"""Read what a file says about its network and images: entries of arguments and configurations.

Names and shapes of tensors do not show padding, pooling, strides, dilations and epsilons, nor mean,
std and channel order of the images. The entries that common code bases store beside the tensors
often do: `arch` (MoCo, DINO, timm), `maxpool1` and `first_conv` (Lightning Bolts),
`hyper_parameters` (Lightning), the configuration texts of OpenMMLab and detectron2, timm's `args`,
printed transforms of torchvision, and the settings of solo-learn, whose 3x3 stem pads by 2.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple, NoReturn

import yaml
from torch import Tensor

from transfer.encoders.architectures import BackboneError, Stem
from transfer.encoders.matching import Match
from transfer.encoders.naming import NAMES

Value = str | int | float
Levels = tuple[float, ...]
"""Red, green and blue, or blue first."""

KEYS: dict[str, str] = NAMES["stated"]
"""Patterns of keys, by what their entries describe."""
MAX_TEXT = 100
"""Longest value that can be a network's name."""
MAX_CONFIG = 200_000
"""Longest configuration text that is read, and most of its entries."""
DECIMALS = 9
"""Decimals of a mean or std from 0 to 1, so that 123.675 of 255 is 0.485."""
BGR_MEAN: Levels = (0.406, 0.456, 0.485)
"""ImageNet's mean as networks with BGR channels have it."""
MAX_DISTANCE = 0.01
"""Largest distance of a mean from BGR_MEAN; Caffe's values are rounded."""
LIGHTNING = "pytorch-lightning_version"
"""Name of the value that Lightning stores in every checkpoint."""
NAME = re.compile(
    r"(?<![a-z0-9])(?:wide)?(?:res[-_ ]?ne(?:t|xt)(?P<blur>aa|blur)?|rn|r)[-_ ]?"
    r"(?P<depth>18|34|50|101|152)(?![0-9])(?P<kind>[cdest](?![a-z0-9]))?"
)
"""Pattern of the names of ResNets, such as resnet50, wide_resnet50_2, ResNet-18, resnetblur50."""
DILATED_BODY = re.compile(r"fcn|deeplab|pspnet|dilated|[-_](os|d)(8|16)(?![0-9])")
NORMALIZE = re.compile(r"Normalize\(mean=([\[(][\d., ]{5,90}[\])]), std=([\[(][\d., ]{3,90}[\])])")
"""Pattern of torchvision's printed transform."""
STEM_VARIANTS: dict[tuple[bool, bool, int], Stem] = {
    # 7x7 convolution, max-pool, padding
    (True, True, 3): "imagenet",
    (True, False, 3): "imagenet-nopool",
    (False, False, 1): "cifar",
    (False, True, 1): "cifar-maxpool",
    (False, False, 2): "cifar-pad2",
}


class Statement(NamedTuple):
    """The meaning of one entry of a file."""

    kind: str
    """depth, large_stem, max_pool, padding, stride_in_1x1, unbuildable, mean, std or order."""
    value: Any
    """For example 50, True, (0.5, 0.5, 0.5), or the reason why a network cannot be built."""
    words: str
    """Key and value of the entry."""


@dataclass(frozen=True, kw_only=True)
class StatedInput:
    """The images that a file states; None or False if it does not state them."""

    mean: Levels | None = None
    """Mean of pixels from 0 to 1 in RGB order."""
    std: Levels | None = None
    is_bgr: bool = False
    """True if the network takes BGR channels."""
    entries: str = ""
    """The entries of the file, in words."""


def read_statements(
    values: Mapping[str, Value], tensors: Mapping[str, Tensor] | None = None
) -> list[Statement]:
    """Return the statements among values and tensors of a file, by their names in it."""
    tensors = tensors or {}
    entries = [*_entries(values)]
    for name, tensor in tensors.items():  # the first versions of detectron2 store the mean so
        if tensor.numel() == 3 and tensor.is_floating_point():
            entries.append((name, [round(level, DECIMALS) for level in tensor.flatten().tolist()]))
    statements = [s for key, several in entries for s in _meanings(key, several)]
    if not any(statement.kind == "padding" for statement in statements):
        statements += _solo_learn(values, tensors)
    return [*dict.fromkeys(statements)]


def _entries(values: Mapping[str, Value]) -> Iterator[tuple[str, list[Value]]]:
    """Yield key and values of each entry; those of a list are one entry.

    The names of containers inside configuration objects are left out: the numbers of parts and
    items, and OmegaConf's _content and _val.
    """
    grouped: dict[str, list[Value]] = {}
    for name, value in values.items():
        words = [w for w in name.split(".") if not w.isdecimal() and w not in ("_content", "_val")]
        key = ".".join(words)
        grouped.setdefault(key, []).append(value)
        if isinstance(value, str) and 8 < len(value) <= MAX_CONFIG:
            yield from _entries_in_text(key, value)
    yield from ((key, several) for key, several in grouped.items() if key)


def _entries_in_text(key: str, text: str) -> Iterator[tuple[str, list[Value]]]:
    """Yield the entries of a text in Python (OpenMMLab) or YAML (detectron2), or a transform."""
    try:
        for triples in NORMALIZE.findall(text):
            for kind, levels in zip(("mean", "std"), triples, strict=True):
                yield f"{key}.image.{kind}", [*ast.literal_eval(levels)]
        if "dict(" in text:
            # mmcv writes the name of each file before its content
            content = re.sub(r"(?m)^\S*/\S+\.py$", "", text)
            yield from _flat(key, _assigned_values(ast.parse(content)))
        elif re.search(r"(cfg|conf\w*|yaml|args|hparams|opts?)$", key.lower()) and ":" in text:
            yield from _flat(key, yaml.safe_load(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError, yaml.YAMLError):
        return  # not such a text


def _assigned_values(module: ast.Module) -> dict[str, Any]:
    """Return the plain values of a configuration in Python; variables are replaced by theirs."""
    named: dict[str, Any] = {}

    def evaluate(node: ast.AST | None) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return named.get(node.id)
            case ast.Call():
                return {word.arg or "": evaluate(word.value) for word in node.keywords}
            case ast.Dict():
                pairs = zip(node.keys, node.values, strict=True)
                return {str(evaluate(key)): evaluate(value) for key, value in pairs}
            case ast.List() | ast.Tuple():
                return [evaluate(item) for item in node.elts]
        return None

    for number, line in enumerate(module.body):
        match line:
            case ast.Assign(targets=[ast.Name(id=name)]):
                named[name] = evaluate(line.value)
            case ast.Expr():
                named[f"line{number}"] = evaluate(line.value)
    return named


def _flat(key: str, node: Any) -> Iterator[tuple[str, list[Value]]]:
    """Yield the entries of nested containers, at most MAX_CONFIG of them."""
    waiting, steps = [(key, node)], count()
    while waiting and next(steps) < MAX_CONFIG:
        name, node = waiting.pop()
        if isinstance(node, dict):
            waiting += [(f"{name}.{word}", child) for word, child in node.items()]
        elif isinstance(node, list) and node and all(isinstance(n, int | float) for n in node):
            yield name, node
        elif isinstance(node, list):
            waiting += [(name, child) for child in node]
        elif isinstance(node, str | int | float):
            yield name, [node]


def _meanings(key: str, values: list[Value]) -> Iterator[Statement]:
    """Yield the statements of one entry."""
    *parents, own = key.lower().split(".")
    parent, value = parents[-1] if parents else "", values[0]
    flag = _flag(value)
    shown = str(value) if len(values) == 1 else str(tuple(values[:8]))
    words = f"{key[-MAX_TEXT:]} {shown[:MAX_TEXT]}"

    def is_key(kind: str, text: str = own) -> bool:
        return re.match(KEYS[kind], text) is not None

    if not any(re.search(KEYS["not_image"], word) for word in parents):
        yield from _image_meanings(key, own, parent, values)
    if any(re.search(KEYS["elsewhere"], word) for word in parents):
        return
    if isinstance(value, str) and (is_key("network") or (own == "name" and is_key("part", parent))):
        yield from _name_meanings(value.lower(), words)
    elif own == "depth" and is_key("part", parent) and isinstance(value, int) and value > 9:
        yield Statement("depth", value, words)
    elif flag is not None and (
        row := next((row for row in NAMES["flags"] if re.match(row["key"], own)), None)
    ):
        yield Statement(row["kind"], flag == row["if"], words)
    elif is_key("padding") and isinstance(value, int):
        yield Statement("padding", value, words)
    elif (own == "style" and value == "caffe") or (own == "stride_in_1x1" and flag):
        yield Statement("stride_in_1x1", True, words)
    elif reason := _unbuildable_reason(own, parent, values):
        yield Statement("unbuildable", reason, words)


def _name_meanings(text: str, words: str) -> Iterator[Statement]:
    match = NAME.search(text) if len(text) <= MAX_TEXT else None
    if match is None:
        return
    yield Statement("depth", int(match["depth"]), words)
    if match["blur"]:
        yield Statement("unbuildable", "anti-aliased strides", words)
    if match["kind"]:
        yield Statement("unbuildable", "another stem or shortcut than the plain network", words)
    if DILATED_BODY.search(text):
        yield Statement("unbuildable", "dilated convolutions", words)
    if "caffe" in text:
        yield Statement("stride_in_1x1", True, words)


def _unbuildable_reason(own: str, parent: str, values: list[Value]) -> str:
    """Return why no network here has this setting; empty for a setting that it has."""
    value, flag = values[0], _flag(values[0])
    is_eps = re.match(KEYS["eps"], own) or (own == "eps" and re.match(KEYS["norm"], parent))
    if own in ("output_stride", "outputstride") and value in (8, 16):
        return f"an output stride of {value} instead of 32"
    if re.match(KEYS["dilation"], own) and any(
        _flag(v) is True if isinstance(v, bool | str) else v > 1 for v in values
    ):
        return "dilated convolutions"
    if own == "strides" and re.match(KEYS["part"], parent) and values != [1, 2, 2, 2]:
        return "other strides of its stages"
    if own == "layer4_stride" and value == 1:
        return "stride 1 in layer4"
    if is_eps and isinstance(value, float) and not 0.99e-5 < value < 1.01e-5:
        return f"batch norms with an eps of {value:g} instead of 1e-5"
    if re.match(KEYS["anti_aliased"], own):
        return "anti-aliased strides" if flag or (isinstance(value, str) and flag is None) else ""
    return ""


def _image_meanings(key: str, own: str, parent: str, values: list[Value]) -> Iterator[Statement]:
    shown = str(tuple(values[:3])) if len(values) > 1 else str(values[0])
    words = f"{key}: {shown}"[-2 * MAX_TEXT :]
    is_named = re.match(KEYS["image_mean_or_std"], own)
    if is_named or (own in ("mean", "std") and re.search(KEYS["image"], parent)):
        kind = "mean" if own.endswith("mean") else "std"
        levels = [float(v) for v in values if isinstance(v, int | float) and v is not True]
        if len(levels) == 1 and isinstance(values[0], float):
            levels *= 3  # timm: one value for all channels
        for start in range(0, len(levels) - 2, 3):  # several lists may have one key
            yield Statement(kind, tuple(levels[start : start + 3]), words)
    elif own in ("to_rgb", "bgr_to_rgb", "to_bgr", "to_bgr255", "rgb_to_bgr"):
        flag, to_rgb = _flag(values[0]), own.endswith("rgb")
        if flag is not None and (flag or to_rgb):  # OpenMMLab reads images as BGR, by OpenCV
            yield Statement("order", "RGB" if flag and to_rgb else "BGR", words)
    elif re.match(KEYS["channels"], own) and (own != "format" or parent.endswith("input")):
        order = str(values[0]).upper()
        if order in ("RGB", "BGR"):
            yield Statement("order", order, words)


def _flag(value: Value) -> bool | None:
    """Return the truth value of a bool, of 0 or 1, or of its name; None for other values."""
    if isinstance(value, str):
        return {"true": True, "false": False, "none": False}.get(value.lower())
    return bool(value) if value in (0, 1) else None


def _solo_learn(values: Mapping[str, Value], tensors: Mapping[str, Tensor]) -> list[Statement]:
    """Return the padding of solo-learn's stem for CIFAR, if solo-learn wrote the file."""
    known = re.compile(KEYS["solo_learn"])
    settings = sorted({word for name in values for word in name.split(".") if known.match(word)})
    parts = {name.split(".")[1] for name in tensors if name.startswith("state_dict.")}
    # the backbone is next to the parts that all methods of solo-learn have
    has_all = parts & {"backbone", "encoder"} and "classifier" in parts
    trained = parts & {"projector", "momentum_backbone", "momentum_encoder", "momentum_projector"}
    if len(settings) > 1:
        evidence = f"hyper-parameters of solo-learn ({', '.join(settings[:2])})"
    elif LIGHTNING in values and has_all and trained:
        evidence = f"tensors of solo-learn (classifier, projector) beside {LIGHTNING}"
    else:
        return []
    return [Statement("padding", 2, f"{evidence}, whose 3x3 stem pads by 2")]


def apply_stem(
    match: Match, found: Iterable[Match], statements: Iterable[Statement]
) -> tuple[Match, str]:
    """Return the ResNet with the stem that the file states, and a note about it.

    BackboneError if a statement contradicts the tensors, or describes a network that cannot be
    built.
    """
    by_kind: defaultdict[str, list[Statement]] = defaultdict(list)
    for statement in statements:
        by_kind[statement.kind].append(statement)
    depths, present = by_kind["depth"], {_depth(m) for m in (match, *found)}
    if depths and not present & {statement.value for statement in depths}:
        _refuse(match, depths[:1], "which is another network")
    for statement in by_kind["unbuildable"]:
        _refuse(match, [statement], f"which means {statement.value}")
    if "layer1.0.conv3.weight" in match.names:  # a bottleneck
        for statement in by_kind["stride_in_1x1"]:
            _refuse(match, [statement], "which means that its bottlenecks stride in the 1x1")
    large = match.plan.stem == "imagenet"
    for statement in by_kind["large_stem"]:
        if statement.value != large:
            _refuse(match, [statement], "which is another stem")
    pools = by_kind["max_pool"]
    paddings = [] if large else by_kind["padding"]  # the padding of a 7x7 kernel is never stated
    for group in (pools, paddings):
        if len({statement.value for statement in group}) > 1:
            _refuse(match, group, "and these differ")
    pool = pools[0].value if pools else large
    padding = paddings[0].value if paddings else 3 if large else 1
    stem = STEM_VARIANTS.get((large, pool, padding))
    if stem is None or (pool and "without maxpool" in match.plan.scheme):
        _refuse(match, [*pools, *paddings], "a stem that its tensors or this suite do not have")
    if stem == match.plan.stem:
        return match, ""
    words = ", ".join(statement.words for statement in (*pools, *paddings))
    plan = replace(match.plan, stem=stem)
    return replace(match, plan=plan), f"{stem} stem, as the file says: {words}"


def _depth(match: Match) -> int:
    """Return the number of layers: one convolution is the stem, and the classifier counts, too."""
    return 2 + sum(bool(re.match(r"layer.*\.conv.*weight$", name)) for name in match.names)


def _refuse(match: Match, statements: Sequence[Statement], reason: str) -> NoReturn:
    raise BackboneError(
        f"the file says {', '.join(s.words for s in statements)}, {reason}; by its tensors the "
        f"network is {match}, whose features would differ. Use a checkpoint of a plain torchvision "
        f"ResNet; or, if the entry does not describe this network, save its state_dict alone"
    )


def input_of(statements: Iterable[Statement]) -> StatedInput:
    """Return the images that the statements describe.

    BackboneError if entries differ, or if they are not a normalization of an image.
    """
    by_kind: dict[str, dict[Any, str]] = {"mean": {}, "std": {}, "order": {}}
    for statement in statements:
        if statement.kind in by_kind:
            by_kind[statement.kind].setdefault(statement.value, statement.words)
    words = ", ".join(text for group in by_kind.values() for text in group.values())
    mean, std, order = (next(iter(group), None) for group in by_kind.values())
    levels = [*(mean or ()), *(std or ())]
    # 0 and 1 in the entries of OpenMMLab and detectron2 leave pixels from 0 to 255
    unchanged = mean == (0, 0, 0) and std == (1, 1, 1)
    are_bytes = max(levels, default=0.0) > 1 or (
        unchanged and (order is not None or "pixel" in words.lower())
    )
    reason = ""
    if max(map(len, by_kind.values())) > 1:
        reason = "and these differ"
    elif are_bytes and not (mean and std):
        reason = "for pixels from 0 to 255, but only one of mean and std"
    elif not all(0 <= level <= 255 for level in levels) or (std and 0 in std):
        reason = "which normalizes no image"
    if reason:
        raise BackboneError(
            f"the file says {words}, {reason}; the images that the network takes are unknown. If "
            f"the entries do not describe this network, save its state_dict alone"
        )
    scale = 255 if are_bytes else 1
    mean, std = (n and tuple(round(level / scale, DECIMALS) for level in n) for n in (mean, std))
    is_bgr = order == "BGR"
    if mean and not order:
        is_bgr = all(abs(a - b) < MAX_DISTANCE for a, b in zip(mean, BGR_MEAN, strict=True))
    if is_bgr:
        mean, std = mean and mean[::-1], std and std[::-1]
    return StatedInput(mean=mean, std=std, is_bgr=is_bgr, entries=words)
