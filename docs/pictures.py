"""python -m docs.pictures: draw the pictures of README and documentation.

They show the demo in runs/demo; run `make demo` first. Chromium must be installed.
"""

import html
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEMO = Path("runs/demo")
REPORT_PICTURE = ROOT / "results" / "reference" / "report" / "page.png"
STATIC = ROOT / "docs" / "_static"
PLAN = (
    *(f"benchmarks/run_all.py --ckpt {DEMO}/jcl/backbone.pt --name jcl".split()),
    *(f"--data {DEMO}/data --schedule smoke --engine torchvision --plan".split()),
)
COLUMNS = 120
TERMINAL = """<meta charset="utf-8"><style>
body {{ margin: 0; padding: 16px; background: #1d1f21; color: #e6e6e6; }}
pre {{ font: 13px/1.4 monospace; margin: 0; white-space: pre-wrap; width: {columns}ch; }}
</style><pre>$ python {command}\n{output}</pre>"""


def screenshot(page: str, picture: Path, width: int, height: int) -> None:
    """Write the top of a page as PNG; width and height in px."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("error: Chromium is not installed, so no pictures can be drawn")
    options = ["--headless", "--no-sandbox", "--hide-scrollbars"]
    size, target = f"--window-size={width},{height}", f"--screenshot={picture}"
    subprocess.run([browser, *options, size, target, page], check=True, capture_output=True)
    print(picture.relative_to(ROOT))


def main() -> None:
    """Draw the first page of the report, and a plan in a terminal."""
    report = DEMO / "results" / "report" / "index.html"
    if not report.exists():
        sys.exit(f"error: {report} does not exist; run make demo first")
    screenshot(report.resolve().as_uri(), REPORT_PICTURE, 1280, 860)
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, *PLAN, "--results", folder, "--runs", folder]
        output = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        page = Path(folder) / "plan.html"
        lines = output.splitlines()
        text = TERMINAL.format(
            columns=COLUMNS, command=" ".join(PLAN), output=html.escape("\n".join(lines))
        )
        page.write_text(text, encoding="utf-8")
        rows = 2 + sum(1 + len(line) // COLUMNS for line in lines)
        screenshot(page.as_uri(), STATIC / "plan.png", COLUMNS * 8 + 32, 32 + 19 * rows)


if __name__ == "__main__":
    main()
