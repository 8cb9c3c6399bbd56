"""Commands run in a namespace without network or home folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch

ROOT = Path(__file__).parents[2]
ISOLATED = ("unshare", "--user", "--map-root-user", "--net")
TASKS = "cifar10_knn,coco_det,voc12_seg_fcn"
"""Frozen features, a detector, and mmsegmentation."""


def has_namespaces() -> bool:
    if not shutil.which("unshare"):
        return False
    return subprocess.run([*ISOLATED, "true"], capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not has_namespaces(), reason="needs unshare and user namespaces")
def test_pretraining_and_evaluation_run_without_network(small_data: Path, tmp_path: Path) -> None:
    # a library that can download weights
    net = timm.create_model("resnet10t", num_classes=0)
    torch.save(net.state_dict(), tmp_path / "timm.pth")

    def run(*words: str) -> None:
        command = [*ISOLATED, sys.executable, *words]
        environment = {**os.environ, "HOME": "/nonexistent", "PYTHONPATH": str(ROOT)}
        for name in ("HF_HUB_OFFLINE", "HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME"):
            environment.pop(name, None)
        subprocess.run(command, check=True, cwd=tmp_path, env=environment, timeout=1200)

    with pytest.raises(subprocess.CalledProcessError):  # so the namespace does its job
        run("-c", "import socket; socket.create_connection(('192.0.2.1', 80), 1)")
    (tmp_path / "images").mkdir()
    for image in sorted((small_data / "pretrain").rglob("*.*"))[:64]:
        (tmp_path / "images" / image.name).symlink_to(image)
    run("-m", "pretrain", "moco/smoke", "--data", "images", "--out", "moco")
    main = (str(ROOT / "benchmarks" / "run_all.py"), "--data", str(small_data))
    options = ("--schedule", "smoke", "--engine", "torchvision", "--gpus", "1")
    run(*main, *options, "--ckpt", "moco/backbone.pt", "--tasks", TASKS)
    words = ("--ckpt", "timm.pth", "--encoder", "timm:resnet10t", "--tasks", "cifar10_knn")
    run(*main, "--schedule", "smoke", *words)
    names = {path.parent.name for path in (tmp_path / "results" / "records").glob("*/*.json")}
    assert names == {"moco", "timm"}
    assert (tmp_path / "results" / "report" / "index.html").is_file()
