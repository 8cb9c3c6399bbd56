"""The tables of a page as LaTeX, with booktabs: each markdown table becomes a tabular."""

import re
from collections.abc import Iterable

SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {sign: f"\\{sign}" for sign in "#$%&_{}"}
SIGNS = {"±": r"$\pm$", "–": "--", "−": "$-$", "→": r"$\rightarrow$", "✓": r"$\checkmark$"}
SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True))


def latex_tables(page: str) -> str:
    """Return the tables of a markdown page, each below its heading as a comment."""
    parts, heading, rows = [], "", list[str]()
    for line in [*page.splitlines(), ""]:
        if line.startswith("|"):
            rows.append(line)
            continue
        if rows:
            parts.append("\n".join([f"% {heading}", *_tabular(rows)]))
            rows = []
        if line.startswith("#"):
            heading = line.lstrip("# ")
    return "\n\n".join(parts) + "\n" * bool(parts)


def _tabular(rows: list[str]) -> Iterable[str]:
    head, rule, *body = ([cell.strip() for cell in re.split(r"(?<!\\)\|", r)[1:-1]] for r in rows)
    columns = "".join("r" if cell.endswith(":") else "l" for cell in rule)
    yield rf"\begin{{tabular}}{{{columns}}}"
    yield r"\toprule"
    yield _line(head)
    yield r"\midrule"
    yield from map(_line, body)
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _line(cells: list[str]) -> str:
    return " & ".join(map(_cell, cells)) + r" \\"


def _cell(text: str) -> str:
    """Return a cell of markdown as LaTeX; bold and italic stay what they are."""
    escaped = "".join(SPECIAL.get(sign, sign) for sign in text.replace(r"\|", "|"))
    escaped = re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", escaped)
    escaped = re.sub(r"^\*(.+)\*$", r"\\textit{\1}", escaped)
    for sign, command in SIGNS.items():
        escaped = escaped.replace(sign, command)
    raised = f"[{''.join(SUPERSCRIPTS)}]+"
    return re.sub(
        raised, lambda found: f"$^{{{''.join(SUPERSCRIPTS[s] for s in found[0])}}}$", escaped
    )
