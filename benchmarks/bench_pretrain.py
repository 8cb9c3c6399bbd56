"""The pre-training step in images/s, and the streamed JCL loss beside the usual one.

python -m benchmarks.bench_pretrain [--recipe jcl/cifar10] [--data DIR]
Without --data the images are generated noise. Ratios above 1 are in favor of this code; both ways
run in turns in this process, in processor time on a CPU and elapsed time on a GPU.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from PIL import Image
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize
from torch.profiler import ProfilerActivity, profile

from pretrain.launch import DeviceChoice, launched
from pretrain.loop import Execution, Precision
