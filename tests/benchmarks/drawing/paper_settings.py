"""The papers' settings of the figures' runs, by paper and method.

The blur probabilities of JCL and LORAC, and LORAC's two key views, are from the papers' code.
Temperature, projector and jitter probability of CO2 are those of MoCo v1.
"""

from typing import Any

V1 = {"config.temperature": 0.07, "config.projector": "linear", "views.jitter_probability": 1}
ALL_JCL = {
    "config.temperature": 0.2,
    "config.queue_size": 65536,
    "views.blur_probability": 0.5,
    "epochs": 100,
    "batch_size": 128,
    "learning_rate": 0.1,
}
MOCO_M = {
    "config.temperature": 0.2,
    "config.num_small_views": 5,
    "config.num_keys": 2,
    "views.crop_area": [0.14, 1.0],
    "views.brightness": 0.8,
    "views.blur_probability": 0.5,
    "optimizer": "lars",
    "epochs": 100,
    "batch_size": 128,
    "learning_rate": 2,
    "weight_decay": 1e-6,
}
SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    ("jcl", "moco"): ALL_JCL,
    ("jcl", "jcl"): ALL_JCL | {"config.num_keys": 5, "config.covariance_weight": 4},
    ("co2", "moco"): V1,
    ("co2", "co2"): V1 | {"config.consistency_weight": 10, "config.consistency_temperature": 0.04},
    ("lorac", "moco_m"): MOCO_M,
    ("lorac", "lorac"): MOCO_M | {"config.beta": 2, "config.prior_from": 0.5},
    ("lorac", "moco"): {
        "config.temperature": 0.2,
        "views.blur_probability": 0.5,
        "epochs": 100,
        "batch_size": 128,
        "learning_rate": 0.1,
        "weight_decay": 1e-4,
    },
}
ONE_SIZE = {
    "config.num_small_views": 0,
    "config.num_keys": 1,  # by equation 12
    "views.crop_area": [0.2, 1.0],
    "views.brightness": 0.4,
}
CHANGES: dict[tuple[str, str], dict[str, Any]] = {
    ("jcl/fig3a", "jcl"): {"config.num_keys": 9},
    ("jcl/fig3b", "jcl"): {"config.num_keys": 9},
    ("lorac/fig4b", "moco_m"): ONE_SIZE,
    ("lorac/fig4b", "lorac"): ONE_SIZE | {"config.beta": 1},
}
"""Settings that differ in a figure, by figure and method."""
