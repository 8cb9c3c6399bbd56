"""Figure of the shares of a network's heads in correct predictions: a panel per data set."""

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benchmarks.drawing.figure import (
    BarPanel,
    Drawn,
    ExamplePanel,
    Identity,
    Material,
    Panel,
    Picture,
    Tile,
)
from benchmarks.drawing.kinds import (
    Kind,
    dataset_title,
    distinct_runs,
    evaluation_sentences,
    is_published_run,
    kind_of,
    line_key,
    mean_point,
    number_of,
    pretraining_sentences,
    seed_words,
)
from benchmarks.drawing.neighbors import pixels
from benchmarks.drawing.order import num_test_images, spread_over_images
from benchmarks.drawing.pictures import captioned, numbered, pretrain_and_evaluate
from benchmarks.pages.published import papers
from benchmarks.pages.records import Result

METHOD = "loocpp"
SEVERAL_HEADS = re.compile(r"-heads\d+$")
"""End of the name of a network with several heads."""
NUM_EXAMPLES = 6
MOST_CLASSES = 12
"""Most classes that a caption names."""
EXAMPLES = "Beside the means: images drawn at random, each with the shares of the heads."
SHARES = "head_shares"
"""Detail of the record of a linear probe on a network with several heads."""


@dataclass(frozen=True, kw_only=True)
class HeadShares(Identity):
    """Mean share of each head in the correct predictions of linear probes."""

    recipe: str
    keys: Mapping[str, str]
    """Key in TASKS of the paper's probes by task id."""
    protocol: str

    @cached_property
    def stated_bits(self) -> dict[str, float]:
        """Return the entropy of the shares that the paper states, by task id."""
        paper = next(paper for paper in papers() if paper.id == self.id.partition("/")[0])
        return {
            one.task: float(statement.values[one.value])
            for statement in paper.stated
            for one in statement.measured
            if one.metric == "head_entropy_bits"
        }

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each network with several heads."""
        networks: dict[tuple[object, ...], dict[str, dict[tuple[str, ...], list[Result]]]] = {}
        lacking = []
        for result in material.results:
            if not result.task.endswith("_linear") or result.model.method != METHOD:
                continue
            if not SEVERAL_HEADS.search(result.model.arch):  # one head of such a network
                continue
            if not _has_shares(result):
                lacking.append(result)
                continue
            kind = kind_of(result)
            # the hashes of one paper's protocols differ between tasks
            protocol_hash, *rest = line_key(result, ())
            key = (result.model.sha256, result.protocol, kind.schedule, kind.evaluation, *rest)
            means = networks.setdefault(key, {}).setdefault(result.task, {})
            means.setdefault((protocol_hash, kind.data), []).append(result)
        versions = (own for tasks in networks.values() for own in self._versions(tasks))
        found = sorted(versions, key=self._rank, reverse=True)
        kinds: list[Kind] = [kind_of(next(iter(own.values()))[0]) for own in found]
        pictures = [self._picture(own) for own in found]
        shown = {task for own in found for task in own}
        # asking for a new record is worth it only if the figure has no other
        problems = tuple(_what_lacks(result, shown=result.task in shown) for result in lacking)
        return Drawn(pictures=numbered(self.file_name, pictures, kinds), problems=problems)

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands of the probes without a record of the paper's network."""
        there = {r.task for r in material.results if self._is_published(r) and _has_shares(r)}
        keys = [key for task, key in self.keys.items() if task not in there]
        return pretrain_and_evaluate([self.recipe], ",".join(keys)) if keys else []

    def _is_published(self, result: Result) -> bool:
        return is_published_run(result, [self.recipe], self.protocol)

    def _versions(
        self, tasks: Mapping[str, Mapping[tuple[str, ...], Sequence[Result]]]
    ) -> Iterable[dict[str, tuple[Result, ...]]]:
        """Yield the results of each picture: the best mean of each task, then the second best."""
        means = {
            task: sorted(
                map(distinct_runs, own.values()),
                key=lambda results: (
                    all(map(self._is_published, results)),
                    len(results),
                    max(result.finished for result in results),
                ),
                reverse=True,
            )
            for task, own in tasks.items()
        }
        for version in range(max(map(len, means.values()))):
            yield {task: own[version] for task, own in means.items() if version < len(own)}

    def _rank(self, own: Mapping[str, Sequence[Result]]) -> tuple[bool, int, str]:
        results = [result for each in own.values() for result in each]
        exact = all(map(self._is_published, results))
        return exact, len(own), max(result.finished for result in results)

    def _picture(self, own: Mapping[str, Sequence[Result]]) -> Picture:
        results = [result for task in sorted(own) for result in own[task]]
        exact = all(map(self._is_published, results))
        names = head_names(results[0])
        panels: list[Panel] = []
        rows, sentences = [], []
        for task in sorted(own):
            shares = tuple(
                mean_point(place, [result.details[SHARES][place] for result in own[task]])
                for place in range(len(names))
            )
            bits = entropy_bits([share.y for share in shares])
            panels.append(
                BarPanel(
                    title=f"{dataset_title(task)}: {bits:.2f} bits",
                    y_label="share in correct predictions",
                    names=tuple(names),
                    shares=shares,
                    highest=max(max(r.details[SHARES]) for r in results),
                )
            )
            if examples := _examples(own[task][0], len(names)):
                panels.append(examples)
            seeds = seed_words(result.seed for result in own[task])
            sentences.append(self._sentence(task, bits, len(names), seeds, stated=exact))
            sentences += [_correct(result) for result in own[task] if _correct(result)]
            rows += [
                (
                    task,
                    name,
                    f"{share.y:.6f}",
                    _words(share.spread),
                    str(share.num_runs),
                    f"{bits:.4f}",
                )
                for name, share in zip(names, shares, strict=True)
            ]
        return captioned(
            self,
            panels,
            [
                *sentences,
                self._order(own),
                *([EXAMPLES] if any(isinstance(panel, ExamplePanel) for panel in panels) else []),
                *pretraining_sentences({"LooC++": [results[0].model]}, ()),
                *evaluation_sentences(results),
            ],
            exact=exact,
            columns=2 if len(panels) > 1 else 1,
            header=("task", "head", "share", "standard_deviation", "runs", "entropy_bits"),
            rows=rows,
        )

    def _sentence(self, task: str, bits: float, count: int, seeds: str, *, stated: bool) -> str:
        """Return a sentence on the entropy of one data set."""
        known = stated and task in self.stated_bits
        paper = f"; the paper says close to {self.stated_bits[task]:g}" if known else ""
        return (
            f"{dataset_title(task)}: the entropy of the mean shares is {bits:.2f} of at most "
            f"{math.log2(count):.2f} bits{paper}, {seeds}."
        )

    def _order(self, own: Mapping[str, Sequence[Result]]) -> str:
        """Return a sentence on the entropies of the data sets beside the paper's order."""
        ordered = sorted(self.stated_bits, key=lambda task: self.stated_bits[task])
        titles = [f"{dataset_title(t)} (close to {self.stated_bits[t]:g})" for t in ordered]
        paper = (
            f"Order: the paper's entropy in bits rises from {' to '.join(titles)}, with four heads"
        )
        if not all(task in own for task in ordered):
            return f"{paper}; not both data sets are here, so there is no order to compare."
        bits = [_mean_bits(own[task]) for task in ordered]
        same = "the same here" if bits == sorted(bits) else "not so here"
        return f"{paper}; {same}."


def _mean_bits(results: Sequence[Result]) -> float:
    shares = [result.details[SHARES] for result in results]
    return entropy_bits([statistics.fmean(own) for own in zip(*shares, strict=True)])


def _correct(result: Result) -> str:
    """Return a sentence on the images that the shares are means over; empty if not known."""
    number, of = result.details.get("num_images_with_shares"), num_test_images(result)
    if not isinstance(number, int) or not of:
        return ""
    per_class = result.details.get("accuracy_per_class")
    classes = per_class if isinstance(per_class, Mapping) else {}
    none = [str(name) for name, percent in classes.items() if not percent]
    words = ", ".join(none) if len(none) <= MOST_CLASSES else f"{len(none)} classes"
    return (
        f"Of this probe (top-1 {number_of(result, 'top1'):.1f} %), {number:,} of {of:,} test "
        "images have shares, as they are predicted correctly"
        f"{f', none of {words}' if none else ''}"
        f"{_uncertainty(result, number)}."
    )


def _uncertainty(result: Result, number: int) -> str:
    """Return words on the standard error of a share over the images; empty for older records."""
    histograms = result.details.get("head_share_histograms")
    if not isinstance(histograms, Mapping):
        return ""
    edges, counts = histograms["edges"], histograms["counts"]
    errors = [spread_over_images(edges, own) / math.sqrt(number) for own in counts if sum(own) > 1]
    return f"; two standard errors of a share are {200 * max(errors):.1f} points" if errors else ""


def _examples(result: Result, num_heads: int) -> ExamplePanel | None:
    """Return single images with their shares; None for records without, which are older."""
    try:
        stored = result.details["head_share_examples"]
        shown = [
            (Tile(pixels=pixels(one["jpeg_base64"]), label=str(one["class"])), tuple(one["shares"]))
            for one in _evenly(stored, NUM_EXAMPLES)
        ]
    except (KeyError, TypeError, ValueError, OSError):
        return None
    if not shown or any(len(shares) != num_heads for _, shares in shown):
        return None
    return ExamplePanel(
        tiles=tuple(tile for tile, _ in shown), shares=tuple(shares for _, shares in shown)
    )


def _evenly(drawn: Sequence[Any], count: int) -> list[Any]:
    """Return at most `count` of the images; they were drawn at random and lie in order of class."""
    count = min(count, len(drawn))
    return [drawn[len(drawn) * place // count] for place in range(count)]


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


def _what_lacks(result: Result, *, shown: bool) -> str:
    """Return what a record without whole shares lacks and, unless others are shown, what to do."""
    what = f"{result.path}, the record of {result.model.name}, has no {SHARES}"
    if shown and SHARES not in result.details:
        return f"{what}, as it is older, and is not shown"
    return (
        f"{what} (shares of correct predictions, which add up to 1); if there are any, delete "
        "the file and run the command again that python -m benchmarks.explain prints for it"
    )


def _has_shares(result: Result) -> bool:
    shares = result.details.get(SHARES)
    return (
        isinstance(shares, list)
        and len(shares) > 1
        and all(isinstance(share, int | float) for share in shares)
        and math.isclose(sum(shares), 1.0, abs_tol=1e-3)
    )


def _words(spread: float | None) -> str:
    return "" if spread is None else f"{spread:.6f}"
