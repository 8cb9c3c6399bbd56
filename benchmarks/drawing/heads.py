"""Figure of the shares of a network's heads in correct predictions: a panel per data set."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.drawing.figure import Drawn, Figure, Material, Panel
from benchmarks.drawing.kinds import (
    dataset_title,
    distinct_runs,
    is_published_run,
    kind_of,
    line_key,
    mean_point,
    newest,
    problem_of,
)
from benchmarks.drawing.panels import BarPanel
from benchmarks.drawing.pictures import (
    Candidate,
    best_picture,
    captioned,
    point_words,
    seed_words,
)
from benchmarks.results.records import Run, grouped

METHOD = "loocpp"
SEVERAL_HEADS = re.compile(r"-heads\d+$")
"""End of the name of a network with several heads; one head of such a network has none."""
SHARES = "head_shares"
"""Detail of the record of a linear probe: shares of correct predictions, which add up to 1."""


@dataclass(frozen=True, kw_only=True)
class HeadShares(Figure):
    """Mean share of each head in the correct predictions of linear probes."""

    recipe: str
    keys: Mapping[str, str]
    """Key in TASKS of the paper's probes, which share a protocol, by task id."""

    def is_published(self, one: Run) -> bool:
        """Return whether a result is one of the paper's."""
        return is_published_run(one, [self.recipe], next(iter(self.keys.values())))

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each network with several heads, each data set's best runs in it."""
        probes = [
            result
            for result in material.results
            if result.task.endswith("_linear")
            and result.method == METHOD
            and SEVERAL_HEADS.search(result.arch)
        ]
        problems = {result.path: problem_of(result, head_shares) for result in probes}
        readable = [result for result in probes if not problems[result.path]]
        candidates = []
        for own in grouped((_network(result), result) for result in readable).values():
            candidates.append(self._candidate(self._best_runs(own)))
        return best_picture(candidates, problems.values())

    def needed(self, material: Material) -> Sequence[str]:
        """Return the recipe with the probes without a record of the paper's network."""
        there = {
            result.task
            for result in material.results
            if self.is_published(result) and not problem_of(result, head_shares)
        }
        missing = [key for task, key in self.keys.items() if task not in there]
        return [f"{self.recipe}: {', '.join(missing)}"] if missing else []

    def _best_runs(self, results: Sequence[Run]) -> dict[str, tuple[Run, ...]]:
        """Return by task the runs of one mean: the paper's, or else the most and newest."""

        def preference(runs: Sequence[Run]) -> tuple[bool, int, str]:
            return all(map(self.is_published, runs)), len(runs), newest(runs)

        tasks: dict[str, list[tuple[Run, ...]]] = {}
        means = grouped(((r.task, r.protocol_hash, kind_of(r).data), r) for r in results)
        for (task, *_), runs in sorted(means.items()):
            tasks.setdefault(task, []).append(distinct_runs(runs))
        return {task: max(each, key=preference) for task, each in tasks.items()}

    def _candidate(self, own: Mapping[str, Sequence[Run]]) -> Candidate:
        """Return the picture of a network's probes, the runs of each data set together."""
        results = [result for runs in own.values() for result in runs]
        names = head_names(results[0])
        panels: list[Panel] = []
        rows, sentences = [], []
        for task, runs in own.items():
            shares = tuple(
                mean_point(place, [head_shares(result)[place] for result in runs])
                for place in range(len(names))
            )
            bits = entropy_bits([share.y for share in shares])
            title = f"{dataset_title(task)}: {bits:.2f} bits"
            panels.append(
                BarPanel(
                    title=title, y_label="share in correct predictions", names=names, shares=shares
                )
            )
            sentences.append(
                f"{dataset_title(task)}: the entropy of the mean shares is {bits:.2f} of at most "
                f"{math.log2(len(names)):.2f} bits, {seed_words(result.seed for result in runs)}; "
                f"{_num_images(runs[0])}."
            )
            rows += [
                (task, name, *point_words(share, 6)[1:], f"{bits:.4f}")
                for name, share in zip(names, shares, strict=True)
            ]
        picture = captioned(
            self,
            panels,
            {"LooC++": results},
            findings=sentences,
            header=("task", "head", "share", "standard_deviation", "runs", "entropy_bits"),
            rows=rows,
        )
        return (len(own), newest(results)), picture


def _network(result: Run) -> tuple[object, ...]:
    """Return what probes of one picture share; the hashes of a paper's protocols differ by task."""
    kind = kind_of(result)
    settings = line_key(result, ())[1:]
    return result.sha256, result.protocol, kind.schedule, kind.evaluation, settings


def _num_images(result: Run) -> str:
    """Return words on how many images the shares are means over."""
    number, of = (result.details.get(k) for k in ("num_images_with_shares", "num_test"))
    if not isinstance(number, int) or not isinstance(of, int):
        return "over the images that are predicted correctly"
    return f"over {number:,} of {of:,} test images, those that are predicted correctly"


def head_names(result: Run) -> list[str]:
    """Return the augmentation that each head is sensitive to; the first is invariant to all."""
    if result.heads:
        return list(result.heads)
    designated: Any = result.settings.get("config.designated", ())
    names = ["invariant", *map(str, designated)]
    count = len(result.details[SHARES])
    return names if len(names) == count else [f"head {place}" for place in range(count)]


def entropy_bits(shares: Sequence[float]) -> float:
    """Return the entropy of shares that add up to 1."""
    return -sum(share * math.log2(share) for share in shares if share > 0)


def head_shares(result: Run) -> list[float]:
    """Return the share of each head; KeyError without any, ValueError if they do not add up."""
    shares: list[float] = result.details[SHARES]
    if len(shares) < 2 or not math.isclose(sum(shares), 1.0, abs_tol=1e-3):
        raise ValueError(f"{SHARES} are not shares of several heads that add up to 1")
    return shares
