"""Pages as LaTeX: what a compiler needs to read is escaped, and the table is the page's."""

from benchmarks.pages.table_rows import table
from benchmarks.tables import latex_tables

PAGE = f"""# Title

Text.

## A block

{table(("method", "top_1 | %"), [["→ mine ¹²", "**71.2** ± 0.3"], ["*group*", ""]])}

- note
"""


def test_a_table_becomes_a_tabular_with_booktabs() -> None:
    assert (
        latex_tables(PAGE)
        == r"""% A block
\begin{tabular}{lr}
\toprule
method & top\_1 | \% \\
\midrule
$\rightarrow$ mine $^{12}$ & \textbf{71.2} $\pm$ 0.3 \\
\textit{group} &  \\
\bottomrule
\end{tabular}
"""
    )
    assert latex_tables("# no table\n") == ""
