"""Tasks that each paper reports: those whose protocol its published numbers name."""

from benchmarks.pages.published import papers
from transfer.tasks import TASKS, reading_of


def suites() -> dict[str, tuple[str, ...]]:
    """Return the keys of TASKS of each paper, in the order of its tables; `also` comes last."""
    suite_keys = {}
    for paper in papers():
        keys = {
            key: None
            for task, protocol in paper.reported
            for key, known in TASKS.items()
            if (reading_of(key)[0], known.protocol.partition("/")[0]) == (task, protocol)
        }
        suite_keys[paper.id] = (*keys, *(key for key in paper.also if key not in keys))
    return suite_keys
