"""The report of `python -m transfer inspect FILE` on a checkpoint."""

from dataclasses import dataclass, field

from transfer.convert.account import Group
from transfer.convert.architectures import Stem


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The interpretation of a checkpoint file."""

    file: str
    layout: str
    prefix: str
    """Prefix of the backbone's tensors, with all enclosing keys of the file."""
    arch: str
    stem: Stem
    account: tuple[Group, ...]
    """Groups that hold every tensor of the file once."""
    candidates: tuple[str, ...]
    """Every complete ResNet in the file, the chosen one first."""
    choice: str
    """Reason for the choice."""
    proof: float | None
    """Largest relative difference of features from those of the raw tensors; None for our files."""
    made_by: dict[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """One line for tables and logs."""
        where = f", prefix {self.prefix}" if self.prefix else ""
        why = f" ({self.choice})" if len(self.candidates) > 1 else ""
        return f"{self.file}: {self.layout} layout{where}{why}"


def render(inspection: Inspection) -> str:
    """Return the report as text of several lines."""
    chosen, *passed_over = inspection.candidates
    lines = [
        inspection.source,
        f"network   {inspection.arch}, {inspection.stem} stem",
        f"backbone  {chosen}: {inspection.choice}",
        *(f"          not taken: {candidate}" for candidate in passed_over),
        "proof     " + _proof(inspection.proof),
        f"tensors   {sum(group.num_tensors for group in inspection.account)}, all accounted for:",
        *(
            f"{group.num_tensors:>10}  {group.num_values:>13,} values  {group.kind:<20}"
            f"{group.prefix or '(no prefix)'}"
            for group in inspection.account
        ),
    ]
    if inspection.made_by:
        lines.append("made by   " + ", ".join(f"{k} {v}" for k, v in inspection.made_by.items()))
    return "\n".join([*lines, *(f"note      {note}" for note in inspection.notes)])


def _proof(difference: float | None) -> str:
    if difference is None:
        return "not needed: written by this suite, names and shapes agree"
    return f"features equal those of the file's own tensors, relative difference {difference:.1e}"
