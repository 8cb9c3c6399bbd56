"""Entries that installed packages add to the registries, by entry points ssl_benchmark.GROUP.

Each entry point names a mapping: methods {name: (class, config)}, recipes {name: Recipe}, tasks
{key: Task}, datasets {key: DatasetInfo}, papers {id: path of a YAML file like those in published/}.
"""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, TypeVar

from pretrain.running.errors import SuiteError

Thing = TypeVar("Thing")
OURS = "ssl-benchmark"


class PluginError(SuiteError, ValueError):
    """Error for a name that two packages give to a method, recipe, task, data set or paper."""


def with_plugins(own: Mapping[str, Thing], group: str) -> dict[str, Thing]:
    """Return a registry with what installed packages add to it.

    PluginError for a name that is in it already, with both packages.
    """
    merged = dict(own)
    origin = dict.fromkeys(own, OURS)
    for point in entry_points(group=f"ssl_benchmark.{group}"):
        package = point.dist.name if point.dist else point.value
        added: Mapping[str, Any] = point.load()
        for name, thing in added.items():
            if name in merged:
                raise PluginError(
                    f"{group} {name!r} is in two packages, {origin[name]} and {package}: "
                    "rename one, or uninstall one of them"
                )
            merged[name], origin[name] = thing, package
    return merged
