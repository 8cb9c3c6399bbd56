"""Explain one number: python -m benchmarks.explain RECORD.

Prints the number next to published numbers with verdicts, the records that it may be compared with,
the protocol with all deviations from the paper, the checkpoint, data, code and machine, and the
command to repeat the evaluation. --name and --task find a record. --json prints the same as JSON:
sections with a text per label, or a list of texts if a label occurs several times, such as
"deviation".
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from benchmarks.results.explanation import TEXT_WIDTH, as_dict, as_text, explain
from benchmarks.results.records import Run, print_unused, read_results, run_of_record
from pretrain.running.command_line import OptionError, nearest, one_line_errors, parse, run_command
from transfer.record import read_record


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """Explain one number."""

    record: Annotated[Path | None, tyro.conf.Positional] = None
    """File of the record."""
    name: str = ""
    """Name of the checkpoint, instead of a file."""
    task: str = ""
    """Task id or variant (in1k_linear@co2), instead of a file."""
    results: Path = Path("results")
    """Results folder for --name and --task."""
    json: bool = False
    """Print JSON instead of text."""


def find_runs(results: Path, name: str, task: str) -> list[Run]:
    """Return the records of a checkpoint and a task.

    They include all protocol variants, unless one is given. Raises OptionError if there are no
    records.
    """
    if not name or not task:
        raise OptionError(
            f"--name {name!r}, --task {task!r}: pass the file of a record, or both options"
        )
    content = read_results(results)
    succeeded = [run for run in (*content.runs, *content.snapshots) if not run.failure]
    of_name = [run for run in succeeded if run.backbone.name == name]
    runs = [run for run in of_name if task in (run.key, run.task)]
    if runs:
        print_unused(content.unused, results)
        return runs
    if of_name:
        message = f"--task {task}: {name} has no such record; nearest: "
        message += nearest(task, sorted({key for run in of_name for key in (run.key, run.task)}))
    else:
        message = f"--name {name}: no records in {results}; nearest: "
        message += nearest(name, {run.backbone.name for run in succeeded}) or "none"
    unused = [line for line in content.unused if f"/{name}/" in line]
    raise OptionError("\n  ".join([message, *unused]))


@one_line_errors(ValueError, OSError)
def main(args: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(ExplainOptions, args, description=__doc__)
    if request.record and (request.name or request.task):
        raise OptionError(f"{request.record}: pass either the file, or --name and --task")
    if request.record:
        runs = [run_of_record(read_record(request.record), request.record)]
    else:
        runs = find_runs(request.results, request.name, request.task)
    explanations = [explain(run) for run in runs]
    if request.json:
        dicts = [as_dict(explanation) for explanation in explanations]
        print(json.dumps(dicts if len(dicts) > 1 else dicts[0], indent=1))
    else:
        print(f"\n\n{'=' * TEXT_WIDTH}\n\n".join(map(as_text, explanations)))
    return 0


if __name__ == "__main__":
    run_command(main, only_prints=True)
