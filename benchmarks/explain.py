"""python -m benchmarks.explain RECORD: everything behind one number.

Prints the number beside its published counterparts with the verdict, which records it may be
compared with, the protocol with every deviation from the paper, checkpoint, data, code and machine,
and the command that makes it again.
--name and --task find a record. --json prints the same as JSON: sections, in them a text by label,
or a list of texts where a label occurs several times, such as "deviation".
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from benchmarks.results.explanation import TEXT_WIDTH, as_dict, as_text, explain
from benchmarks.results.records import Run, read_results, run_of_record
from pretrain.running.command_line import OptionError, nearest, parse, run_command
from transfer.record import RecordError, read_record


@dataclass(frozen=True, kw_only=True)
class Request:
    """Explain one number."""

    record: Annotated[Path | None, tyro.conf.Positional] = None
    """File of the record."""
    name: str = ""
    """Name of the checkpoint, instead of a file."""
    task: str = ""
    """Task id, or task and reading such as in1k_linear@co2, instead of a file."""
    results: Path = Path("results")
    """Folder in which name and task are looked up."""
    json: bool = False
    """Print JSON instead of text."""


def find_runs(results: Path, name: str, task: str) -> list[Run]:
    """Return the records of a checkpoint and a task, of all its readings unless one is named.

    OptionError if there is none.
    """
    if not name or not task:
        raise OptionError(
            f"--name {name!r}, --task {task!r}: give the file of a record, or both of these"
        )
    content = read_results(results)
    done = [run for run in (*content.runs, *content.snapshots) if not run.failure]
    unused = [one for one in content.unused if name in Path(one.file).parts]
    refused = "".join(f"\n  {one}" for one in unused)
    own = [run for run in done if run.backbone == name]
    if not own:
        near = nearest(name, {run.backbone for run in done})
        raise OptionError(
            f"--name {name}: no records in {results}; nearest: {near or 'none'}{refused}"
        )
    of_task = [run for run in own if task in (run.key, run.task)]
    if not of_task:
        near = nearest(task, sorted({key for one in own for key in (one.key, one.task)}))
        raise OptionError(
            f"--task {task}: {name} has no such record; nearest: {near or 'none'}{refused}"
        )
    return of_task


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(Request, words, description=__doc__)
    try:
        if request.record and (request.name or request.task):
            raise OptionError(f"{request.record}: give the file, or --name and --task, not both")
        if request.record:
            runs = [run_of_record(read_record(request.record), request.record)]
        else:
            runs = find_runs(request.results, request.name, request.task)
        explanations = [explain(run) for run in runs]
    except (OptionError, RecordError, OSError) as error:
        message = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        print(f"error: {message}", file=sys.stderr)
        return 2
    if request.json:
        dicts = [as_dict(explanation) for explanation in explanations]
        print(json.dumps(dicts if len(dicts) > 1 else dicts[0], indent=1))
    else:
        print(f"\n\n{'=' * TEXT_WIDTH}\n\n".join(map(as_text, explanations)))
    return 0


if __name__ == "__main__":
    run_command(main, only_prints=True)
