"""python -m pretrain.readme: write the tables of methods and recipes in pretrain/README.md anew."""

import re
import sys
from pathlib import Path

from pretrain.methods import METHODS
from pretrain.recipe_table import markdown, recipe_markdown

README = Path(__file__).with_name("README.md")


def method_markdown() -> str:
    """Return a Markdown table of the methods: names, idea and paper, from each file's docstring."""
    names: dict[str, list[str]] = {}
    for name, (method, _) in METHODS.items():
        names.setdefault(method.__module__, []).append(f"`{name}`")
    rows = [
        (", ".join(methods), *idea_and_paper(sys.modules[module].__doc__ or ""))
        for module, methods in names.items()
    ]
    return markdown(("methods", "idea", "paper"), rows)


def idea_and_paper(docstring: str) -> tuple[str, str]:
    """Return the first line of a docstring, and the first sentence after it or an empty text."""
    idea, _, rest = docstring.partition("\n\n")
    paper = " ".join(rest.split()).partition(". ")[0]
    return idea.rstrip("."), paper.rstrip(".")


def with_tables(text: str) -> str:
    """Return a README with both tables, each between its two markers, as they are now."""
    for name, table in (("methods", method_markdown()), ("recipes", recipe_markdown())):
        start, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        pattern = re.compile(f"(?<={re.escape(start)}).*?(?={re.escape(end)})", re.S)
        if len(pattern.findall(text)) != 1:
            raise ValueError(f"the README needs one table between {start!r} and {end!r}")
        before, after = pattern.split(text)
        text = before + table + after
    return text


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text()))
