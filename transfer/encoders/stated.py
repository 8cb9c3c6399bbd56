"""Read a file's settings of its network and input images.

The names and shapes of tensors do not show padding, pooling, strides, dilations and epsilons, nor
mean, std and channel order of the images. Common code bases often store these as entries next to
the tensors. Read are `arch` (MoCo, DINO, timm), `maxpool1` and `first_conv` (Lightning Bolts), and
`hyper_parameters` (Lightning). Also read are configuration texts of OpenMMLab and detectron2,
timm's `args`, printed torchvision transforms, and settings of solo-learn, which pads its 3x3 stem
by 2.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
"""Patterns of keys, by the setting that their entries describe."""
MAX_TEXT = 100
"""Maximum length of a network's name."""
MAX_CONFIG = 200_000
"""Maximum length of a configuration text."""
DECIMALS = 9
"""Decimals of a mean or std: 123.675 / 255 gives 0.485."""
BGR_MEAN: Levels = (0.406, 0.456, 0.485)
"""ImageNet's mean for networks with BGR channels."""
MAX_DISTANCE = 0.01
"""Maximum distance of a mean from BGR_MEAN; Caffe's values are rounded."""
LIGHTNING = "pytorch-lightning_version"
"""Key that Lightning stores in every checkpoint."""
NAME = re.compile(
    r"(?<![a-z0-9])(?:wide)?(?:res[-_ ]?ne(?:t|xt)(?P<blur>aa|blur)?|rn|r)[-_ ]?"
    r"(?P<depth>18|34|50|101|152)(?![0-9])(?P<kind>[cdest](?![a-z0-9]))?"
)
"""Pattern of ResNet names, such as resnet50, wide_resnet50_2, ResNet-18, resnetblur50."""
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
    """One setting that a file declares."""

    kind: str
    """depth, large_stem, max_pool, padding, stride_in_1x1, unbuildable, mean, std or order."""
    value: Any
    """50, True or (0.5, 0.5, 0.5), or a reason for "unbuildable"."""
    text: str
    """Key and value of the entry."""


@dataclass(frozen=True, kw_only=True)
class StatedInput:
    """Input images as declared by a file; None or False if undeclared."""

    mean: Levels | None = None
    """Mean of pixels from 0 to 1 in RGB order."""
    std: Levels | None = None
    is_bgr: bool = False
    """True if the network takes BGR channels."""
    entries: str = ""
    """The entries of the file as text."""


def read_statements(values: Mapping[str, Value], tensors: Mapping[str, Tensor]) -> list[Statement]:
    """Return the settings that values and tensors of a file declare."""
    entries = [*_entries(values)]
    for name, tensor in tensors.items():  # early versions of detectron2 store the mean as a tensor
        if tensor.numel() == 3 and tensor.is_floating_point():
            entries.append((name, [round(level, DECIMALS) for level in tensor.flatten().tolist()]))
    statements = [
        statement for key, entry_values in entries for statement in _meanings(key, entry_values)
    ]
    if not any(statement.kind == "padding" for statement in statements):
        statements += _solo_learn(values, tensors)
    return [*dict.fromkeys(statements)]


def _entries(values: Mapping[str, Value]) -> Iterator[tuple[str, list[Value]]]:
    """Yield key and values of each entry; a list is one entry.

    Container names of configuration objects are left out of the key: list indices, and OmegaConf's
    _content and _val.
    """
    grouped: dict[str, list[Value]] = {}
    for name, value in values.items():
        names = [n for n in name.split(".") if not n.isdecimal() and n not in ("_content", "_val")]
        key = ".".join(names)
        grouped.setdefault(key, []).append(value)
        if isinstance(value, str) and 8 < len(value) <= MAX_CONFIG:
            yield from _entries_in_text(key, value)
    yield from ((key, entry_values) for key, entry_values in grouped.items() if key)


def _entries_in_text(key: str, text: str) -> Iterator[tuple[str, list[Value]]]:
    """Yield the entries of a configuration text or a printed transform.

    The text is Python (OpenMMLab) or YAML (detectron2).
    """
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
        return  # not a configuration


def _assigned_values(module: ast.Module) -> dict[str, Any]:
    """Return the plain values of a Python configuration, with variables replaced."""
    variables: dict[str, Any] = {}

    def evaluate(node: ast.AST | None) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return variables.get(node.id)
            case ast.Call():
                return {keyword.arg or "": evaluate(keyword.value) for keyword in node.keywords}
            case ast.Dict():
                pairs = zip(node.keys, node.values, strict=True)
                return {str(evaluate(key)): evaluate(value) for key, value in pairs}
            case ast.List() | ast.Tuple():
                return [evaluate(item) for item in node.elts]
        return None

    for number, line in enumerate(module.body):
        match line:
            case ast.Assign(targets=[ast.Name(id=name)]):
                variables[name] = evaluate(line.value)
            case ast.Expr():
                variables[f"line{number}"] = evaluate(line.value)
    return variables


def _flat(key: str, node: Any) -> Iterator[tuple[str, list[Value]]]:
    """Yield the entries of nested containers."""
    if isinstance(node, dict):
        for name, child in node.items():
            yield from _flat(f"{key}.{name}", child)
    elif isinstance(node, list) and node and all(isinstance(n, int | float) for n in node):
        yield key, node
    elif isinstance(node, list):
        for child in node:
            yield from _flat(key, child)
    elif isinstance(node, str | int | float):
        yield key, [node]


def _meanings(key: str, values: list[Value]) -> Iterator[Statement]:
    """Yield the settings that one entry declares."""
    *parents, last = key.lower().split(".")
    parent, value = parents[-1] if parents else "", values[0]
    flag = _flag(value)
    value_text = str(value) if len(values) == 1 else str(tuple(values[:8]))
    text = f"{key[-MAX_TEXT:]} {value_text[:MAX_TEXT]}"

    def is_key(kind: str, name: str = last) -> bool:
        return re.match(KEYS[kind], name) is not None

    if not any(re.search(KEYS["not_image"], parent_key) for parent_key in parents):
        yield from _image_meanings(key, last, parent, values)
    if any(re.search(KEYS["elsewhere"], parent_key) for parent_key in parents):
        return
    if isinstance(value, str) and (
        is_key("network") or (last == "name" and is_key("part", parent))
    ):
        yield from _name_meanings(value.lower(), text)
    elif last == "depth" and is_key("part", parent) and isinstance(value, int) and value > 9:
        yield Statement("depth", value, text)
    elif flag is not None and (
        row := next((row for row in NAMES["flags"] if re.match(row["key"], last)), None)
    ):
        yield Statement(row["kind"], flag == row["if"], text)
    elif is_key("padding") and isinstance(value, int):
        yield Statement("padding", value, text)
    elif (last == "style" and value == "caffe") or (last == "stride_in_1x1" and flag):
        yield Statement("stride_in_1x1", True, text)
    elif reason := _unbuildable_reason(last, parent, values):
        yield Statement("unbuildable", reason, text)


def _name_meanings(name: str, text: str) -> Iterator[Statement]:
    match = NAME.search(name) if len(name) <= MAX_TEXT else None
    if match is None:
        return
    yield Statement("depth", int(match["depth"]), text)
    if match["blur"]:
        yield Statement("unbuildable", "anti-aliased strides", text)
    if match["kind"]:
        yield Statement("unbuildable", "another stem or shortcut than the plain network", text)
    if DILATED_BODY.search(name):
        yield Statement("unbuildable", "dilated convolutions", text)
    if "caffe" in name:
        yield Statement("stride_in_1x1", True, text)


def _unbuildable_reason(key: str, parent: str, values: list[Value]) -> str:
    """Return why the suite cannot build this setting; empty if it can."""
    value, flag = values[0], _flag(values[0])
    is_eps = re.match(KEYS["eps"], key) or (key == "eps" and re.match(KEYS["norm"], parent))
    if key in ("output_stride", "outputstride") and value in (8, 16):
        return f"an output stride of {value} instead of 32"
    if re.match(KEYS["dilation"], key) and any(
        _flag(v) is True if isinstance(v, bool | str) else v > 1 for v in values
    ):
        return "dilated convolutions"
    if key == "strides" and re.match(KEYS["part"], parent) and values != [1, 2, 2, 2]:
        return "other strides of its stages"
    if key == "layer4_stride" and value == 1:
        return "stride 1 in layer4"
    if is_eps and isinstance(value, float) and not 0.99e-5 < value < 1.01e-5:
        return f"batch norms with an eps of {value:g} instead of 1e-5"
    if re.match(KEYS["anti_aliased"], key):
        return "anti-aliased strides" if flag or (isinstance(value, str) and flag is None) else ""
    return ""


def _image_meanings(key: str, last: str, parent: str, values: list[Value]) -> Iterator[Statement]:
    value_text = str(tuple(values[:3])) if len(values) > 1 else str(values[0])
    text = f"{key}: {value_text}"[-2 * MAX_TEXT :]
    is_named = re.match(KEYS["image_mean_or_std"], last)
    if is_named or (last in ("mean", "std") and re.search(KEYS["image"], parent)):
        kind = "mean" if last.endswith("mean") else "std"
        levels = [float(v) for v in values if isinstance(v, int | float) and v is not True]
        if len(levels) == 1 and isinstance(values[0], float):
            levels *= 3  # timm: one value for all channels
        for start in range(0, len(levels) - 2, 3):  # several lists may have one key
            yield Statement(kind, tuple(levels[start : start + 3]), text)
    elif last in ("to_rgb", "bgr_to_rgb", "to_bgr", "to_bgr255", "rgb_to_bgr"):
        flag, to_rgb = _flag(values[0]), last.endswith("rgb")
        if flag is not None and (flag or to_rgb):  # OpenMMLab reads images as BGR, by OpenCV
            yield Statement("order", "RGB" if flag and to_rgb else "BGR", text)
    elif re.match(KEYS["channels"], last) and (last != "format" or parent.endswith("input")):
        order = str(values[0]).upper()
        if order in ("RGB", "BGR"):
            yield Statement("order", order, text)


def _flag(value: Value) -> bool | None:
    """Return the truth value of a bool, 0, 1 or text, or None."""
    if isinstance(value, str):
        return {"true": True, "false": False, "none": False}.get(value.lower())
    return bool(value) if value in (0, 1) else None


def _solo_learn(values: Mapping[str, Value], tensors: Mapping[str, Tensor]) -> list[Statement]:
    """Return the padding of solo-learn's CIFAR stem, if it wrote the file."""
    setting_pattern = re.compile(KEYS["solo_learn"])
    settings = sorted(
        {token for name in values for token in name.split(".") if setting_pattern.match(token)}
    )
    modules = {name.split(".")[1] for name in tensors if name.startswith("state_dict.")}
    # every method of solo-learn stores these modules next to the backbone
    has_all = modules & {"backbone", "encoder"} and "classifier" in modules
    trained = modules & {"projector", "momentum_backbone", "momentum_encoder", "momentum_projector"}
    if len(settings) > 1:
        evidence = f"hyper-parameters of solo-learn ({', '.join(settings[:2])})"
    elif LIGHTNING in values and has_all and trained:
        evidence = f"tensors of solo-learn (classifier, projector) and {LIGHTNING}"
    else:
        return []
    return [Statement("padding", 2, f"{evidence}, which pads its 3x3 stem by 2")]


def apply_stem(
    match: Match, matches: Iterable[Match], statements: Iterable[Statement]
) -> tuple[Match, str]:
    """Return the ResNet with the declared stem, and a note about it.

    Raises BackboneError if a setting contradicts the tensors, or describes a network that the suite
    cannot build.
    """
    by_kind: defaultdict[str, list[Statement]] = defaultdict(list)
    for statement in statements:
        by_kind[statement.kind].append(statement)
    depths, existing_depths = by_kind["depth"], {_depth(m) for m in (match, *matches)}
    if depths and not existing_depths & {statement.value for statement in depths}:
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
    has_pool = pools[0].value if pools else large
    padding = paddings[0].value if paddings else 3 if large else 1
    stem = STEM_VARIANTS.get((large, has_pool, padding))
    if stem is None or (has_pool and "without maxpool" in match.plan.scheme):
        _refuse(match, [*pools, *paddings], "a stem that its tensors or this suite do not have")
    if stem == match.plan.stem:
        return match, ""
    entries = ", ".join(statement.text for statement in (*pools, *paddings))
    plan = replace(match.plan, stem=stem)
    return replace(match, plan=plan), f"{stem} stem, as the file says: {entries}"


def _depth(match: Match) -> int:
    """Return the number of layers, including the stem and the classifier."""
    return 2 + sum(bool(re.match(r"layer.*\.conv.*weight$", name)) for name in match.names)


def _refuse(match: Match, statements: Sequence[Statement], reason: str) -> NoReturn:
    raise BackboneError(
        f"the file says {', '.join(s.text for s in statements)}, {reason}; by its tensors the "
        f"network is {match}. If the entry does not describe this network, save only its state_dict"
    )


def input_of(statements: Iterable[Statement]) -> StatedInput:
    """Return the input images that the settings describe.

    Raises BackboneError if entries differ, or if they do not normalize an image.
    """
    by_kind: dict[str, dict[Any, str]] = {"mean": {}, "std": {}, "order": {}}
    for statement in statements:
        if statement.kind in by_kind:
            by_kind[statement.kind].setdefault(statement.value, statement.text)
    entries = ", ".join(entry for group in by_kind.values() for entry in group.values())
    mean, std, order = (next(iter(group), None) for group in by_kind.values())
    levels = [*(mean or ()), *(std or ())]
    # mean 0 and std 1 of OpenMMLab and detectron2 mean pixels from 0 to 255
    unchanged = mean == (0, 0, 0) and std == (1, 1, 1)
    are_bytes = max(levels, default=0.0) > 1 or (
        unchanged and (order is not None or "pixel" in entries.lower())
    )
    reason = ""
    if max(map(len, by_kind.values())) > 1:
        reason = "and these differ"
    elif are_bytes and not (mean and std):
        reason = "for pixels from 0 to 255, but only one of mean and std"
    elif not all(0 <= level <= 255 for level in levels) or (std and 0 in std):
        reason = "which cannot normalize an image"
    if reason:
        raise BackboneError(
            f"the file says {entries}, {reason}, so its input images are unknown. If the entries "
            f"do not describe this network, save only its state_dict"
        )
    scale = 255 if are_bytes else 1
    mean, std = (
        rgb and tuple(round(level / scale, DECIMALS) for level in rgb) for rgb in (mean, std)
    )
    is_bgr = order == "BGR"
    if mean and not order:
        is_bgr = all(abs(a - b) < MAX_DISTANCE for a, b in zip(mean, BGR_MEAN, strict=True))
    if is_bgr:
        mean, std = mean and mean[::-1], std and std[::-1]
    return StatedInput(mean=mean, std=std, is_bgr=is_bgr, entries=entries)
