"""What GPUs can do at most, and their rates for plans, from what `measure.py` has measured.

Peaks are those of the makers' data sheets, dense, with sums in float32.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from transfer.running.measured_rates import Rates, save_rates

Facts = dict[str, float | str]
"""Measured numbers by name."""
FEATURES, PROBE, TITLE = "rate of features of ", "rate of a linear probe", "rate of "
PRECISIONS = ("float32", "bfloat16")


def write_rates(
    runs: Path, gpu: str, measured: Mapping[str, Facts], *, date: str, commit: str
) -> Path | None:
    """Write the rates of this machine's GPU below --runs; return the file, None without any rate.

    gpu: the name by torch.cuda.get_device_name. measured: facts by the name of what was measured;
    names without a rate are ignored. date: such as 2026-11-22.
    """
    rates = rates_of(gpu, measured, date=date, commit=commit)
    if not (rates.features or rates.probe_crops or rates.trainings):
        return None
    return save_rates(runs, rates)


def rates_of(gpu: str, measured: Mapping[str, Facts], *, date: str, commit: str) -> Rates:
    """Return the rates in the facts, by the name of what was measured."""
    features: dict[str, dict[str, float]] = {}
    trainings: dict[str, dict[str, dict[str, float]]] = {}
    probe = 0.0
    for name, facts in measured.items():
        if name.startswith(FEATURES):
            arch, precision = name.removeprefix(FEATURES).split(" in ")
            features.setdefault(arch, {})[precision] = float(facts["images/s"])
        elif name == PROBE:
            probe = float(facts["crops/s"])
        elif name.startswith(TITLE):
            times = training_times(facts)
            if times:
                trainings[name.removeprefix(TITLE)] = times
    return Rates(
        gpu=gpu,
        measured=date,
        commit=commit,
        features=features,
        probe_crops=probe,
        trainings=trainings,
    )


def training_times(facts: Facts) -> dict[str, dict[str, float]]:
    """Return images and seconds per iteration by precision, as far as they were measured."""
    return {
        precision: {
            "images": float(facts[f"images per pass in {precision}"]),
            "seconds": float(facts[f"seconds per iteration in {precision}"]),
        }
        for precision in PRECISIONS
        if f"seconds per iteration in {precision}" in facts
    }


BF16_TFLOPS: Mapping[str, float] = {
    "B200": 2250,
    "H200 NVL": 835,
    "H200": 989,
    "GH200": 989,
    "H100 PCIe": 756,
    "H100 NVL": 835,
    "H100": 989,
    "L40S": 362,
    "A100": 312,
    "A30": 165,
    "A40": 150,
    "RTX 4090": 165,
    "L4": 121,
    "RTX 3090": 71,
}
"""Words of a GPU's name -> TFLOP/s; of two that fit, the first counts."""


def bf16_peak(name: str) -> float | None:
    """Return the TFLOP/s of a GPU by its name, such as "NVIDIA A100-SXM4-80GB"; None: unknown.

    That of a slice of a GPU (MIG) is unknown: its name is the whole one's with a suffix.
    """
    words = set(re.split(r"[ -]", name))
    if "MIG" in words:
        return None
    for known, peak in BF16_TFLOPS.items():
        if set(known.split()) <= words:
            return peak
    return None
