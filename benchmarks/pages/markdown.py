"""Markdown tables with padded, readable source, and numbered notes below them."""

from collections.abc import Iterable, Sequence

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Return a padded markdown table; the first `left` columns are text, the others numbers."""
    texts = [[escape(text) for text in line] for line in (header, *rows)]
    widths = [max(3, *(len(line[i]) for line in texts)) for i in range(len(header))]
    rule = [":" + "-" * (w - 1) if i < left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join(_line(line, widths, left) for line in (texts[0], rule, *texts[1:]))


def _line(texts: Sequence[str], widths: Sequence[int], left: int) -> str:
    padded = [
        text.ljust(width) if i < left else text.rjust(width)
        for i, (text, width) in enumerate(zip(texts, widths, strict=True))
    ]
    return "| " + " | ".join(padded) + " |"


def escape(text: str) -> str:
    """Return the text on one line, with its bars escaped, so that it cannot end a table cell."""
    return " ".join(text.replace("|", "\\|").split())


def bold(text: str) -> str:
    """Return the text in bold."""
    return f"**{text}**"


class Notes:
    """Numbered notes; the same text gets the same number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, texts: Iterable[str]) -> str:
        """Return the raised numbers of these notes, each after a space; empty for no note."""
        numbers = sorted(self._numbers.setdefault(t, len(self._numbers) + 1) for t in texts)
        return "".join(" " + str(number).translate(SUPERSCRIPTS) for number in numbers)

    @property
    def texts(self) -> list[str]:
        """Return the notes in the order of their numbers, which start at 1."""
        return list(self._numbers)

    def lines(self) -> list[str]:
        """Return the notes as a numbered list."""
        return [f"{number}. {escape(text)}" for text, number in self._numbers.items()]
