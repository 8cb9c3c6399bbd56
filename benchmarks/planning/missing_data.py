"""The one command that gets the data sets that a plan lacks."""

import shlex
from collections.abc import Sequence

from benchmarks.planning.plan import PlannedCell
from transfer.datasets.catalog import DATASETS
from transfer.getting import overview
from transfer.getting.assemble import Getting
from transfer.getting.request import sources_of


def get_data_command(rows: Sequence[PlannedCell]) -> str:
    """Return its size and the command on two lines; empty if no set is missing that can be got."""
    missing = dict.fromkeys(key for row in rows for key in row.missing if DATASETS[key].sources)
    if not missing:
        return ""
    data = rows[0].cell.settings.data
    sources = sources_of(tuple(missing))
    getting = Getting(data=data)
    by_hand = [
        source.key
        for source in sources
        if source.access != "download" and not source.is_there(data)
    ]
    note = f"; {', '.join(by_hand)} from your own archives, --from FOLDER" if by_hand else ""
    words = ["get-data", *missing, "--data", str(data)]
    return (
        f"missing data: {overview.summary(sources, getting)}{note}:\n"
        f"python -m transfer {shlex.join(words)}"
    )
