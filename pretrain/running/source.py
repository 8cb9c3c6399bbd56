"""The commit of the running source code."""

import subprocess
from pathlib import Path


def commit() -> str:
    """Return the commit of this checkout; empty without one.

    A "+" is appended if Python files have changed.
    """
    folder = Path(__file__).parent
    try:
        git(folder, "ls-files", "--error-unmatch", Path(__file__).name)  # fails in another checkout
        head = git(folder, "rev-parse", "--short=10", "HEAD")
        changes = git(folder, "status", "--porcelain", "--", ":/*.py")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changes else "")


def git(folder: Path, *args: str) -> str:
    """Return the output of a git command; raises CalledProcessError if it fails."""
    process = subprocess.run(["git", *args], cwd=folder, capture_output=True, text=True, check=True)
    return process.stdout.strip()
