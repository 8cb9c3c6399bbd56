"""Figure of the shares of a network's heads in correct predictions: a panel per data set."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benchmarks.drawing.figure import BarPanel, Drawn, ExamplePanel, Figure, Material, Panel, Tile
from benchmarks.drawing.kinds import (
    dataset_title,
    distinct_runs,
    is_published_run,
    kind_of,
    line_key,
    mean_point,
    newest,
    num_test_images,
    number_of,
    problem_of,
    spread_over_images,
)
from benchmarks.drawing.neighbors import evenly, pixels
from benchmarks.drawing.pictures import (
    Candidate,
    captioned,
    paper_of,
    point_words,
    pretrain_and_evaluate,
    ranked_pictures,
    seed_words,
    versions,
)
from benchmarks.pages.records import Result

METHOD = "loocpp"
SEVERAL_HEADS = re.compile(r"-heads\d+$")
"""End of the name of a network with several heads; one head of such a network has none."""
NUM_EXAMPLES = 6
MOST_CLASSES = 12
"""Most classes that a caption names."""
EXAMPLES = "Beside the means: images drawn at random, each with the shares of the heads."
SHARES = "head_shares"
"""Detail of the record of a linear probe: shares of correct predictions, which add up to 1."""


@dataclass(frozen=True, kw_only=True)
class HeadShares(Figure):
    """Mean share of each head in the correct predictions of linear probes."""

    recipe: str
    keys: Mapping[str, str]
    """Key in TASKS of the paper's probes by task id."""
    protocol: str

    @cached_property
    def stated_bits(self) -> dict[str, float]:
        """Return the entropy of the shares that the paper states, by task id."""
        return {
            one.task: float(statement.values[one.value])
            for statement in paper_of(self.id).stated
            for one in statement.measured
            if one.metric == "head_entropy_bits"
        }

    def is_published(self, one: Result) -> bool:
        """Return whether a result is one of the paper's."""
        return is_published_run(one, [self.recipe], self.protocol)

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each network with several heads."""
        probes = [
            result
            for result in material.results
            if result.task.endswith("_linear")
            and result.model.method == METHOD
            and SEVERAL_HEADS.search(result.model.arch)
        ]
        problems = {result.path: problem_of(result, head_shares) for result in probes}
        networks: dict[object, dict[str, dict[object, list[Result]]]] = {}
        for result in [one for one in probes if not problems[one.path]]:
            kind = kind_of(result)
            # the hashes of one paper's protocols differ between tasks
            protocol_hash, *rest = line_key(result, ())
            key = (result.model.sha256, result.protocol, kind.schedule, kind.evaluation, *rest)
            means = networks.setdefault(key, {}).setdefault(result.task, {})
            means.setdefault((protocol_hash, kind.data), []).append(result)
        candidates = [
            self._candidate(own)
            for tasks in networks.values()
            for own in versions(
                sorted(map(distinct_runs, means.values()), key=self._preference, reverse=True)
                for means in tasks.values()
            )
        ]
        return ranked_pictures(candidates, filter(None, problems.values()))

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands of the probes without a record of the paper's network."""
        there = {
            result.task
            for result in material.results
            if self.is_published(result) and not problem_of(result, head_shares)
        }
        keys = [key for task, key in self.keys.items() if task not in there]
        return pretrain_and_evaluate([self.recipe], ",".join(keys)) if keys else []

    def _preference(self, results: Sequence[Result]) -> tuple[bool, int, str]:
        return all(map(self.is_published, results)), len(results), newest(results)

    def _candidate(self, probes: Sequence[Sequence[Result]]) -> Candidate:
        """Return the picture of a network's probes, the runs of each data set together."""
        own = {runs[0].task: runs for runs in sorted(probes, key=lambda runs: runs[0].task)}
        results = [result for runs in own.values() for result in runs]
        exact = all(map(self.is_published, results))
        names = head_names(results[0])
        panels: list[Panel] = []
        rows, sentences, entropies = [], [], {}
        for task, runs in own.items():
            shares = tuple(
                mean_point(place, [head_shares(result)[place] for result in runs])
                for place in range(len(names))
            )
            bits = entropies[task] = entropy_bits([share.y for share in shares])
            panels += _panels(task, runs[0], names, shares, bits, results)
            known = exact and task in self.stated_bits
            paper = f"; the paper says close to {self.stated_bits[task]:g}" if known else ""
            sentences.append(
                f"{dataset_title(task)}: the entropy of the mean shares is {bits:.2f} of at most "
                f"{math.log2(len(names)):.2f} bits{paper}, "
                f"{seed_words(result.seed for result in runs)}."
            )
            sentences += filter(None, map(_correct, runs))
            rows += [
                (task, name, *point_words(share, 6)[1:], f"{bits:.4f}")
                for name, share in zip(names, shares, strict=True)
            ]
        examples = [EXAMPLES] if any(isinstance(one, ExamplePanel) for one in panels) else []
        picture = captioned(
            self,
            panels,
            {"LooC++": results},
            findings=[*sentences, self._order(entropies), *examples],
            runs="",
            columns=2 if len(panels) > 1 else 1,
            header=("task", "head", "share", "standard_deviation", "runs", "entropy_bits"),
            rows=rows,
        )
        return Candidate((len(own), newest(results)), kind_of(probes[0][0]), picture)

    def _order(self, entropies: Mapping[str, float]) -> str:
        """Return a sentence on the entropies of the data sets beside the paper's order."""
        ordered = sorted(self.stated_bits, key=lambda task: self.stated_bits[task])
        titles = [f"{dataset_title(t)} (close to {self.stated_bits[t]:g})" for t in ordered]
        paper = (
            f"Order: the paper's entropy in bits rises from {' to '.join(titles)}, with four heads"
        )
        if not all(task in entropies for task in ordered):
            return f"{paper}; not both data sets are here, so there is no order to compare."
        bits = [entropies[task] for task in ordered]
        return f"{paper}; {'the same here' if bits == sorted(bits) else 'not so here'}."


def _panels(
    task: str, first: Result, names: Sequence[str], shares: Any, bits: float, results: Any
) -> list[Panel]:
    """Return a data set's bars and, if the record holds some, single images with their shares."""
    bars = BarPanel(
        title=f"{dataset_title(task)}: {bits:.2f} bits",
        y_label="share in correct predictions",
        names=tuple(names),
        shares=shares,
        highest=max(max(result.details[SHARES]) for result in results),
    )
    shown = evenly(first.details.get("head_share_examples") or [], NUM_EXAMPLES)
    examples = ExamplePanel(
        tiles=tuple(Tile(pixels=pixels(o["jpeg_base64"]), label=str(o["class"])) for o in shown),
        shares=tuple(tuple(one["shares"]) for one in shown),
    )
    return [bars, examples] if shown else [bars]


def _correct(result: Result) -> str:
    """Return a sentence on the images that the shares are means over; empty if not known."""
    number, of = result.details.get("num_images_with_shares"), num_test_images(result)
    if number is None or of is None:
        return ""
    classes = result.details.get("accuracy_per_class", {})
    none = [str(name) for name, percent in classes.items() if not percent]
    words = ", ".join(none) if len(none) <= MOST_CLASSES else f"{len(none)} classes"
    stored = result.details["head_share_histograms"]
    edges, counts = stored["edges"], stored["counts"]
    errors = [spread_over_images(edges, own) / math.sqrt(number) for own in counts if sum(own) > 1]
    noise = f"; two standard errors of a share are {200 * max(errors):.1f} points" if errors else ""
    return (
        f"Of this probe (top-1 {number_of(result, 'top1'):.1f} %), {number:,} of {of:,} test "
        "images have shares, as they are predicted correctly"
        f"{f', none of {words}' if none else ''}{noise}."
    )


def head_names(result: Result) -> list[str]:
    """Return the augmentation that each head is sensitive to; the first is invariant to all."""
    if result.model.heads:
        return list(result.model.heads)
    designated: Any = result.model.settings.get("config.designated", ())
    names = ["invariant", *map(str, designated)]
    count = len(result.details[SHARES])
    return names if len(names) == count else [f"head {place}" for place in range(count)]


def entropy_bits(shares: Sequence[float]) -> float:
    """Return the entropy of shares that add up to 1."""
    return -sum(share * math.log2(share) for share in shares if share > 0)


def head_shares(result: Result) -> list[float]:
    """Return the share of each head; KeyError without any, ValueError if they do not add up."""
    shares: list[float] = result.details[SHARES]
    if len(shares) < 2 or not math.isclose(sum(shares), 1.0, abs_tol=1e-3):
        raise ValueError(f"{SHARES} are not shares of several heads that add up to 1")
    return shares
