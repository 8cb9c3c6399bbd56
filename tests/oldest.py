"""make test-oldest: the wheel and the tests with the oldest supported versions.

First come the oldest torch, OpenCV and numpy 2, as a user may have them. Installing the wheel
changes none of these packages, and an evaluation runs from an empty folder. Then all packages are
installed in their oldest versions: fast tests of every part of the suite, a training of two
processes, and compiled networks. Without a package index there is nothing to install: the remaining
checks are skipped with a note, and the exit status is 0.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
ENVIRONMENT = ROOT / ".venv" / "oldest"
PYTHON = ENVIRONMENT / "bin" / "python"
USERS = ("torch==2.6.0", "torchvision==0.21.0", "opencv-python<5", "numpy<2.4")
"""Packages in a user's environment before the suite is installed."""
TESTS = (
    *("tests/contracts", "tests/pretrain/methods", "tests/pretrain/parts"),
    *("tests/pretrain/running/test_torch_versions.py", "tests/pretrain/test_main.py"),
    *("tests/transfer/test_process_state.py", "tests/transfer/encoders/test_encoder.py"),
    *("tests/benchmarks/drawing", "tests/benchmarks/test_tables.py"),
    "tests/benchmarks/test_run_all.py",
)
"""Tests that cover every package.

The contracts end in a record for each kind of task.
"""
FAST = "not slow and not slurm and not browser and not gpu and not data and not detectron2"
UNREACHABLE = ("Failed to fetch", "Failed to download", "was not found in the")
"""Messages of uv without an index, or with a missing package."""
MAKE_CHECKPOINT = (
    "import torch, torchvision; torch.manual_seed(0); "
    "torch.save(torchvision.models.resnet18().state_dict(), 'r18.pth')"
)


def main() -> int:
    """Run all checks; return the exit status."""
    started_s = time.monotonic()
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    run([UV, "venv", "--quiet", ENVIRONMENT])
    # without the project's own configuration, which a wheel does not carry
    install: list[str | Path] = [
        UV,
        "pip",
        "install",
        "--quiet",
        "--no-config",
        "--compile-bytecode",
    ]
    install += ["--python", PYTHON]
    if subprocess.run([*install, *USERS], cwd=ROOT.parent, check=False).returncode:
        print("test-oldest: skipped, since no package index answers with these versions")
        return 0
    folder = ENVIRONMENT / "empty"
    folder.mkdir()
    if not try_the_wheel(install, folder):
        return 0
    print(f"the wheel works beside {', '.join(USERS)}; {time.monotonic() - started_s:.0f} s")
    run([UV, "pip", "uninstall", "--quiet", "--python", PYTHON, "opencv-python", "ssl-benchmark"])
    oldest: list[str | Path] = [
        UV,
        "pip",
        "install",
        "--quiet",
        "--compile-bytecode",
        "--resolution",
    ]
    if not installs([*oldest, "lowest-direct", "--python", PYTHON, "--editable", ".[dev]"], ROOT):
        return 0
    pytest: list[str | Path] = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    one_thread = ("env", "OMP_NUM_THREADS=1")  # per worker, as in make test
    workers = ("-n", "auto", "--maxprocesses", "8", "--dist", "loadgroup")
    run([*one_thread, *pytest, *workers, "-m", FAST, *TESTS])
    slow = ("tests/pretrain/test_two_processes.py", "tests/pretrain/test_compilation.py")
    run([*pytest, "-n", "0", *slow])
    print(f"the oldest versions pass; {time.monotonic() - started_s:.0f} s")
    return 0


def installs(args: Sequence[str | Path], folder: Path) -> bool:
    """Run an installation.

    Return False, with a note, if the package index does not answer. Any other error, such as
    conflicting requirements, raises SystemExit.
    """
    completed = subprocess.run(args, cwd=folder, stderr=subprocess.PIPE, text=True, check=False)
    if completed.returncode == 0:
        return True
    print(completed.stderr, file=sys.stderr)
    if not any(sign in completed.stderr for sign in UNREACHABLE):
        sys.exit(completed.returncode)
    print("test-oldest: skipping the remaining checks, since the package index does not answer")
    return False


def try_the_wheel(install: Sequence[str | Path], folder: Path) -> bool:
    """Install the wheel in a user's environment; evaluate from an empty folder.

    False if the wheel's requirements could not be installed.
    """
    previous = installed()
    run([UV, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT])
    (wheel,) = folder.glob("*.whl")
    if not installs([*install, wheel], folder):
        return False
    current = installed()
    changed = {name for name, version in previous.items() if current.get(name) != version}
    assert not changed, f"the installation changed {changed}"
    run([UV, "pip", "check", "--quiet", "--python", PYTHON])
    (folder / "transfer").mkdir()  # a user's folder of this name must not hide ours
    (folder / "transfer" / "__init__.py").touch()
    run([PYTHON, "-c", MAKE_CHECKPOINT], folder)
    scripts = PYTHON.parent
    run([scripts / "ssl-transfer", "generate-data", "--data", "data"], folder)
    args = ["--ckpt", "r18.pth", "--data", "data", "--schedule", "smoke", "--tasks", "cifar10_knn"]
    run([scripts / "ssl-benchmark", *args], folder)
    assert (folder / "results" / "tables" / "overview.md").is_file()
    record = ["explain", "--name", "r18", "--task", "cifar10_knn"]
    explain: list[str | Path] = [scripts / "ssl-benchmark", *record]
    output = subprocess.run(explain, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert "ssl-transfer cifar10_knn --ckpt" in output, output
    return True


def installed() -> dict[str, str]:
    """Return the installed packages and their versions."""
    listed: list[str | Path] = [UV, "pip", "list", "--python", PYTHON, "--format", "json"]
    answer = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    return {package["name"]: package["version"] for package in json.loads(answer)}


def run(args: Sequence[str | Path], folder: Path = ROOT) -> None:
    """Run a command; SystemExit with its status if it fails."""
    status = subprocess.run(args, cwd=folder, check=False).returncode
    if status:
        print(f"test-oldest: {' '.join(map(str, args))} failed", file=sys.stderr)
        sys.exit(status)


if __name__ == "__main__":
    sys.exit(main())
