"""GPU results against the CPU's: `pytest -m gpu` or `make gpu-check`.

Each test has a CPU twin. A test notes its differences in `findings`, which `pytest --junitxml FILE`
writes as properties of the test.
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch

from tests.gpu.findings import Findings, exact_float32
from tests.gpu.started import Workspace


@pytest.fixture(
    params=[
        pytest.param("cpu", marks=pytest.mark.slow),
        pytest.param("cuda", marks=pytest.mark.gpu),
    ]
)
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    """A device that computes in full float32, and an empty folder."""
    with exact_float32():
        yield Workspace(device=torch.device(request.param), folder=tmp_path)


@pytest.fixture
def findings() -> Findings:
    """Differences that the test notes.

    The test fails at its end if one is above its bound.
    """
    return Findings()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(
    pyfuncitem: pytest.Function,
) -> Generator[None, object, object]:
    """Fail a test by its findings, and write them to the XML."""
    result = yield
    findings = pyfuncitem.funcargs.get("findings")
    if isinstance(findings, Findings):
        pyfuncitem.user_properties += findings.properties
        assert not findings.failures, "; ".join(findings.failures)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """End the run after a CUDA error: later results are not reliable."""
    report = yield
    if call.excinfo is not None and is_cuda_error(call.excinfo.value):
        item.session.shouldstop = f"an error of CUDA in {item.name}"
    return report


def is_cuda_error(error: BaseException | None) -> bool:
    """Return whether an error or its cause is a lasting CUDA error.

    Out of memory does not count: later kernels run as before.
    """
    if error is None:
        return False
    name = type(error).__name__
    lasting = name == "AcceleratorError" or "CUDA error" in str(error)
    ours = lasting and name != "OutOfMemoryError"
    return ours or is_cuda_error(error.__cause__) or is_cuda_error(error.__context__)
