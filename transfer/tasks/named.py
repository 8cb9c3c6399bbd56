"""A task with its key, and ablations of it with other numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from pretrain.running.errors import SuiteError
from transfer.tasks.task import Task


class TaskError(SuiteError, ValueError):
    """Error for a task that does not exist, or that an encoder cannot do."""


@dataclass(frozen=True)
class NamedTask:
    """A task of the suite, or an ablation of one."""

    key: str
    task: Task

    def ablation(self, name: str, **changes: object) -> NamedTask:
        """Return the task with other numbers, under a protocol name and hash of its own.

        name: appended to that of the protocol. TaskError for a number that the protocol lacks.
        """
        known = {spec.name for spec in fields(self.task)} - {"protocol", "by_default"}
        if unknown := sorted(set(changes) - known):
            raise TaskError(
                f"{self.key} has no {', '.join(unknown)}; its numbers are "
                f"{', '.join(sorted(known))}"
            )
        protocol = f"{self.task.protocol}+{name}"
        return NamedTask(self.key, replace(self.task, protocol=protocol, **changes))  # type: ignore[arg-type]
