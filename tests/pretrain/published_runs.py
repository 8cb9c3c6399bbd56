"""The published pre-training runs as the papers and the works they build on tell them.

Written down a second time, for test_recipes.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from pretrain.data.views import ViewRecipe

MOCO_V2 = ViewRecipe(
    size_px=224,
    crop_area=(0.2, 1.0),
    small_size_px=96,
    small_crop_area=(0.05, 0.14),
    crop_aspect=(3 / 4, 4 / 3),
    jitter_probability=0.8,
    brightness=0.4,
    contrast=0.4,
    saturation=0.4,
    hue=0.1,
    gray_probability=0.2,
    gray_first=False,
    blur_probability=0.5,
    blur_sigma_px=(0.1, 2.0),
    flip_probability=0.5,
    rotation_probability=0.0,
    texture_probability=0.0,
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
)
MOCO_V1 = replace(
    MOCO_V2,
    jitter_probability=1.0,
    hue=0.4,
    gray_first=True,
    gray_probability=0.2,
    blur_probability=0,
)
SWAV = replace(
    MOCO_V2,
    crop_area=(0.14, 1.0),
    brightness=0.8,
    contrast=0.8,
    saturation=0.8,
    hue=0.2,
    std=(0.228, 0.224, 0.225),
)
MULTI_CROP = replace(MOCO_V2, crop_area=(0.14, 1.0))
CROP_AND_FLIP = replace(
    MOCO_V2, crop_area=(0.08, 1.0), jitter_probability=0, gray_probability=0, blur_probability=0
)
SIMCLR_VIEWS = replace(
    MOCO_V2, crop_area=(0.08, 1.0), brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2
)
BYOL_VIEWS = replace(
    MOCO_V2,
    crop_area=(0.08, 1.0),
    saturation=0.2,
    blur_probability=1.0,
    second_blur_probability=0.1,
    solarize_probability=0.0,
    second_solarize_probability=0.2,
)
CIFAR10_VIEWS = replace(
    MOCO_V2, size_px=32, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)
)
CIFAR100_VIEWS = replace(
    MOCO_V2, size_px=32, mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762)
)
ROTATED = replace(MOCO_V2, rotation_probability=0.5)
TEXTURED = replace(MOCO_V2, texture_probability=0.5)
ROTATED_AND_TEXTURED = replace(ROTATED, texture_probability=0.5)

SGD = {
    "stem": "imagenet",
    "final_learning_rate": 0.0,
    "warmup_epochs": 0.0,
    "schedule_unit": "epoch",
    "optimizer": "sgd",
    "weight_decay": 1e-4,
    "sgd_momentum": 0.9,
    "test_px": 0,
}
LARS = SGD | {"schedule_unit": "step", "optimizer": "lars", "weight_decay": 1e-6}
LORAC_LARS = LARS | {
    "trust_coefficient": 0.001,
    "exclude_vectors": False,
    "final_learning_rate": 0.018,
}
LORAC_IN100_LARS = LORAC_LARS | {"final_learning_rate": 0.002}
UNICLR_LARS = LARS | {"trust_coefficient": 0.001, "exclude_vectors": True, "warmup_epochs": 10}
CIFAR_SGD = SGD | {"stem": "cifar", "schedule_unit": "step", "weight_decay": 5e-4}

QUEUE = {"queue_size": 65_536, "momentum": 0.999, "embedding_dim": 128, "bn_splits": 1}
SHORT_QUEUE = QUEUE | {"queue_size": 16_384, "temperature": 0.2}
MOCO = QUEUE | {"temperature": 0.2, "projector": "mlp", "symmetric": False, "label_smoothing": 0.0}
ON_V1 = MOCO | {"temperature": 0.07, "projector": "linear", "consistency_temperature": 0.04}
JCL = QUEUE | {
    "temperature": 0.2,
    "num_keys": 5,
    "covariance_weight": 4.0,
    "covariance_ramp": "constant",
    "key_forward": "concatenated",
}
CO2_V1 = QUEUE | {
    "temperature": 0.07,
    "projector": "linear",
    "consistency_temperature": 0.04,
    "consistency_weight": 10.0,
}
LORAC = QUEUE | {
    "prior": "laplace",
    "prior_from": 0.5,
    "beta": 4.0,
    "temperature": 0.2,
    "legacy_untempered": False,
    "num_large_views": 3,
    "num_small_views": 5,
    "num_keys": 2,
    "q_rows": "large_and_keys",
    "gaussian_center": 5**0.5,
    "gaussian_variance": 2.0,
    "margin": 3.0,
}
UNICLR = {
    "sym_on": "logits",
    "ce_both_directions": False,
    "ridge": 1.0,
    "groups": 1,
    "detach_covariance": False,
    "affinity_scope": "global",
    "momentum": 0.99,
    "hidden_dim": 2048,
    "embedding_dim": 2048,
    "predictor_dim": 512,
    "sync_bn": True,
}
SHORT_UNICLR = UNICLR | {"ridge": 1e-3, "embedding_dim": 256, "predictor_dim": 64}
VARIANTS = {"simaffinity": "affinity", "simwhitening": "whitening", "simtrace": "trace"}


class Run(NamedTuple):
    """A pre-training run as a paper tells it, or the work that it builds on."""

    arch: str
    images: str
    epochs: int
    batch_size: int
    learning_rate: float
    optimization: Mapping[str, Any]
    """Other fields of the Recipe."""
    views: ViewRecipe
    config: Mapping[str, Any]
    drops: tuple[int, ...] = ()
    """Epochs from which the rate is a tenth of what it was; none: cosine."""

    def but(self, **settings: Any) -> "Run":
        """Return the run with other settings of the method."""
        return self._replace(config={**self.config, **settings})


def uniclr_run(run: Run, variant: str, *marks: str) -> Run:
    """Marks: T temperature, S symmetric loss, M momentum, C multi-crop, P predictor."""
    return run.but(
        variant=variant,
        temperature=0.5 if "T" in marks else 1.0,
        symmetry_weight=0.01 if "S" in marks else 0.0,
        momentum_encoder="M" in marks,
        num_small_views=6 if "C" in marks else 0,
        predictor="P" in marks,
    )._replace(views=MULTI_CROP if "C" in marks else run.views)


IN1K, IN100 = "ImageNet-1k train", "ImageNet-100 train"
JCL_IN100 = Run("resnet18", IN100, 100, 128, 0.1, SGD, MOCO_V2, JCL)
V1_IN1K = Run("resnet50", IN1K, 200, 256, 0.03, SGD, MOCO_V1, ON_V1, drops=(120, 160))
V2_IN1K = Run("resnet50", IN1K, 200, 256, 0.03, SGD, MOCO_V2, MOCO)
V1_IN100 = V1_IN1K._replace(arch="resnet18", images=IN100)
V2_IN100 = JCL_IN100._replace(config=MOCO)
CO2_IN100 = V1_IN100._replace(config=CO2_V1)
LORAC_IN1K = Run("resnet50", IN1K, 200, 256, 1.8, LORAC_LARS, SWAV, LORAC)
LORAC_IN100 = Run("resnet18", IN100, 100, 128, 2.0, LORAC_IN100_LARS, SWAV, LORAC).but(beta=2.0)
FIGURE_4B = LORAC_IN100._replace(views=MOCO_V2).but(beta=1.0, num_small_views=0, num_keys=1)
UNICLR_IN1K = Run("resnet50", IN1K, 200, 512, 0.1, UNICLR_LARS, MOCO_V2, UNICLR)
UNICLR_IN100 = UNICLR_IN1K._replace(images=IN100)
UNICLR_CIFAR = {
    name: Run(
        "resnet18", f"{data} train, as images", 1000, 512, 0.06, CIFAR_SGD, views, SHORT_UNICLR
    )
    for name, data, views in (
        ("cifar10", "CIFAR-10", CIFAR10_VIEWS),
        ("cifar100", "CIFAR-100", CIFAR100_VIEWS),
    )
}
LOOC_MOCO = V2_IN1K._replace(images=IN100, epochs=500, drops=(300, 400)).but(queue_size=16_384)
LOOC = LOOC_MOCO._replace(config=SHORT_QUEUE | {"conv5_heads": False})
LOOCPP = LOOC.but(conv5_heads=True)
CLASSES = {"num_classes": 1000, "label_smoothing": 0.0}
SUPERVISED = Run("resnet50", IN1K, 90, 256, 0.1, SGD, CROP_AND_FLIP, CLASSES, drops=(30, 60))
LABELED = ", a folder per class"
BARLOW_LARS = UNICLR_LARS | {"final_learning_rate": 0.0016}
BARLOW_TWINS = Run(
    "resnet50",
    IN1K,
    1000,
    2048,
    1.6,
    BARLOW_LARS | {"weight_decay": pytest.approx(1.5e-6 * 0.0048 / 0.2)},
    BYOL_VIEWS,
    {
        "off_diagonal_weight": 0.005,
        "loss_scale": pytest.approx(0.0048 / 0.2),
        "hidden_dim": 8192,
        "embedding_dim": 8192,
    },
)
VICREG_CODE = Run(
    "resnet50",
    IN1K,
    1000,
    2048,
    1.6,
    BARLOW_LARS,
    BYOL_VIEWS,
    {
        "invariance_weight": 25.0,
        "variance_weight": 25.0 / 2,
        "covariance_weight": 1.0,
        "hidden_dim": 8192,
        "embedding_dim": 8192,
    },
)
VICREG_VIEWS = replace(
    MOCO_V2, crop_area=(0.08, 1.0), saturation=0.2, blur_probability=0.5, solarize_probability=0.1
)
ZERO_CL_LARS = UNICLR_LARS | {
    "trust_coefficient": 0.02,
    "weight_decay": pytest.approx(1e-6 * 0.0048 / 0.3),
}
ZERO_CL = Run(
    "resnet50",
    IN1K,
    400,
    1024,
    1.2,
    ZERO_CL_LARS | {"final_learning_rate": pytest.approx(0.0012)},
    BYOL_VIEWS,
    {
        "ridge": 0.01,
        "loss_scale": pytest.approx(0.0048 / 0.3),
        "hidden_dim": 2048,
        "embedding_dim": 2048,
    },
)
ZERO_CL_256 = ZERO_CL._replace(
    batch_size=256,
    learning_rate=0.3,
    optimization=ZERO_CL_LARS | {"final_learning_rate": pytest.approx(0.0003)},
)
EXCLUDING_LARS = LARS | {"trust_coefficient": 0.001, "exclude_vectors": True, "warmup_epochs": 10}
INSTDISC = {
    "num_images": 1_281_167,
    "num_negatives": 4096,
    "temperature": 0.07,
    "bank_momentum": 0.5,
    "proximal_weight": 0.0,
    "embedding_dim": 128,
}
SIMCLR = {"temperature": 0.1, "hidden_dim": 2048, "embedding_dim": 128, "sync_bn": True}
SIMCLR_IN1K = Run("resnet50", IN1K, 1000, 4096, 4.8, EXCLUDING_LARS, SIMCLR_VIEWS, SIMCLR)
BYOL = {"momentum": 0.996, "hidden_dim": 4096, "embedding_dim": 256, "sync_bn": True}
BYOL_IN1K = Run(
    "resnet50", IN1K, 1000, 4096, 3.2, EXCLUDING_LARS | {"weight_decay": 1.5e-6}, BYOL_VIEWS, BYOL
)
BYOL_300 = Run("resnet50", IN1K, 300, 4096, 4.8, EXCLUDING_LARS, BYOL_VIEWS, BYOL).but(
    momentum=0.99
)
SIMSIAM = {"hidden_dim": 2048, "predictor_dim": 512, "embedding_dim": 2048, "sync_bn": True}
SIMSIAM_IN1K = Run("resnet50", IN1K, 200, 256, 0.05, SGD, MOCO_V2, SIMSIAM)
SWAV_CONFIG = {
    "temperature": 0.1,
    "epsilon": 0.05,
    "sinkhorn_iterations": 3,
    "num_prototypes": 3000,
    "prototypes_from": 1 / 800,
    "queue_size": 0,
    "queue_from": 0.0,
    "num_assigned_views": 2,
    "num_large_views": 2,
    "num_small_views": 6,
    "hidden_dim": 2048,
    "embedding_dim": 128,
}
SWAV_IN1K = Run(
    "resnet50",
    IN1K,
    800,
    4096,
    4.8,
    LORAC_LARS | {"final_learning_rate": 0.0048, "warmup_epochs": 10},
    SWAV,
    SWAV_CONFIG,
)
SWAV_SMALL = SWAV_IN1K._replace(
    epochs=200,
    batch_size=256,
    learning_rate=0.6,
    optimization=LORAC_LARS | {"final_learning_rate": 0.0006},
).but(prototypes_from=1 / 200, queue_size=3840, queue_from=15 / 200)
SWAV_IN100 = SWAV_SMALL._replace(
    arch="resnet18",
    images=IN100,
    batch_size=128,
    learning_rate=0.3,
    optimization=LORAC_LARS | {"final_learning_rate": 0.0003},
).but(num_large_views=3, num_small_views=5)
DINO_CONFIG = {
    "temperature": 0.1,
    "target_temperature": 0.07,
    "first_target_temperature": 0.04,
    "temperature_warmup": 50 / 800,
    "center_momentum": 0.9,
    "momentum": 0.996,
    "last_layer_from": 1 / 800,
    "output_dim": 60_000,
    "num_small_views": 6,
    "hidden_dim": 2048,
    "embedding_dim": 256,
    "head_norm": True,
}
DINO_VIEWS = replace(
    MOCO_V2,
    crop_area=(0.14, 1.0),
    saturation=0.2,
    blur_probability=1.0,
    second_blur_probability=0.1,
    small_blur_probability=0.5,
    second_solarize_probability=0.2,
)
DINO_IN_UNICLR = DINO_CONFIG | {
    "output_dim": 4096,
    "num_small_views": 0,
    "momentum": 0.9995,
    "temperature_warmup": 0.05,
}

PUBLISHED: dict[str, Run] = {
    "jcl/in1k-r50": Run("resnet50", IN1K, 200, 512, 0.06, SGD, MOCO_V2, JCL),
    "jcl/in1k-r50-code": V2_IN1K._replace(config=JCL).but(
        num_keys=4, covariance_weight=2.0, covariance_ramp="linear"
    ),
    "jcl/in100-r18": JCL_IN100,
    **{f"jcl/in100-r18-keys{m}": JCL_IN100.but(num_keys=m) for m in (1, 2, 3, 7, 9, 11)},
    **{
        f"jcl/in100-r18-covariance{weight}": JCL_IN100.but(covariance_weight=weight)
        for weight in (0, 0.2, 0.5, 1, 2, 6, 8, 10)
    },
    **{
        f"jcl/in100-r18-temperature{tau}": JCL_IN100.but(temperature=tau)
        for tau in (0.05, 0.07, 0.1, 0.3, 0.4, 0.5)
    },
    "multi_key/in100-r18": JCL_IN100._replace(config=QUEUE | {"temperature": 0.2, "num_keys": 5}),
    "moco/in1k-r50-v1": V1_IN1K,
    "moco/in1k-r50-v2": V2_IN1K,
    "moco/in1k-r50-v2+": V2_IN1K._replace(epochs=800).but(symmetric=True),
    "moco/in100-r18-v1": V1_IN100,
    **{
        f"moco/in100-r18-v1-smoothing{share}": V1_IN100.but(label_smoothing=share)
        for share in (0.1, 0.01, 0.001)
    },
    "moco/in100-r18-v2": V2_IN100,
    **{
        f"moco/in100-r18-v2-epochs{epochs}": V2_IN100._replace(epochs=epochs)
        for epochs in (200, 400, 600, 800, 1000, 1200)
    },
    "co2/in1k-r50-v1": V1_IN1K._replace(config=CO2_V1),
    "co2/in1k-r50-v2": V2_IN1K._replace(config=CO2_V1).but(
        temperature=0.2, projector="mlp", consistency_temperature=0.05, consistency_weight=0.3
    ),
    "co2/in100-r18": CO2_IN100,
    **{f"co2/in100-r18-weight{a}": CO2_IN100.but(consistency_weight=a) for a in (1, 3, 5, 20, 30)},
    **{
        f"co2/in100-r18-temperature{tau}": CO2_IN100.but(consistency_temperature=tau)
        for tau in (0.01, 0.02, 0.07, 0.1, 0.2)
    },
    "lorac/in1k-r50": LORAC_IN1K,
    "lorac/in1k-r50-code": LORAC_IN1K.but(beta=15 / 5, legacy_untempered=True),
    "moco_m/in1k-r50": LORAC_IN1K.but(prior="none"),
    "lorac/in100-r18": LORAC_IN100,
    "lorac/in100-r18-gaussian": LORAC_IN100.but(prior="gaussian"),
    "lorac/in100-r18-batchwise": LORAC_IN100.but(prior="batch", batch_scope="local"),
    "lorac/in100-r18-margin": LORAC_IN100.but(prior="margin"),
    "moco_m/in100-r18": LORAC_IN100.but(prior="none"),
    **{
        f"lorac/in100-r18-beta{beta}": LORAC_IN100.but(beta=beta)
        for beta in (0.25, 0.5, 1, 4, 8, 16)
    },
    **{
        f"{method}/in100-r18-epochs{epochs}": LORAC_IN100._replace(epochs=epochs).but(prior=prior)
        for method, prior in (("lorac", "laplace"), ("moco_m", "none"))
        for epochs in (200, 400, 600, 800, 1000, 1200)
    },
    **{
        f"{method}/in100-r18-views{m}": FIGURE_4B.but(prior=prior, num_large_views=m)
        for method, prior in (("lorac", "laplace"), ("moco_m", "none"))
        for m in (2, 3, 4, 5, 6, 7, 8)
    },
    **{
        f"{method}/in1k-r50-{end}": uniclr_run(UNICLR_IN1K, VARIANTS[method], *marks)
        for method, end, marks in (
            ("simwhitening", "plain", ""),
            ("simwhitening", "temperature", "T"),
            ("simwhitening", "symmetric", "S"),
            ("simwhitening", "temperature-symmetric", "TS"),
            ("simwhitening", "symmetric-momentum", "SM"),
            ("simwhitening", "symmetric-momentum-multicrop", "SMC"),
            ("simwhitening", "tricks-symmetric-momentum-multicrop-predictor", "SMCP"),
            ("simaffinity", "plain", ""),
            ("simaffinity", "temperature", "T"),
            ("simaffinity", "symmetric", "S"),
            ("simaffinity", "temperature-symmetric", "TS"),
            ("simaffinity", "temperature-symmetric-momentum", "TSM"),
            ("simaffinity", "temperature-symmetric-momentum-multicrop", "TSMC"),
            ("simaffinity", "tricks-temperature-symmetric-momentum-multicrop-predictor", "TSMCP"),
            ("simtrace", "plain", ""),
            ("simtrace", "multicrop", "C"),
            ("simtrace", "tricks", "MCP"),
        )
    },
    **{
        f"{method}/{end}": uniclr_run(run, VARIANTS[method], *marks)
        for method, marks in (("simaffinity", "TS"), ("simwhitening", "S"), ("simtrace", ""))
        for end, run in {"in100-r50": UNICLR_IN100, **UNICLR_CIFAR}.items()
    },
    **{
        f"simaffinity/{name}-fig2{end}": uniclr_run(run._replace(epochs=200), "affinity", *marks)
        for name, run in UNICLR_CIFAR.items()
        for end, marks in (
            ("", "TS"),
            ("-without-t", "S"),
            ("-without-s", "T"),
            ("-without-ts", ""),
        )
    },
    "instdisc/in1k-r50": V1_IN1K._replace(config=INSTDISC),
    "simclr/in1k-r50": SIMCLR_IN1K,
    "simclr/in1k-r50-epochs200-batch8192": SIMCLR_IN1K._replace(
        epochs=200, batch_size=8192, learning_rate=9.6
    ),
    "simclr/in1k-r50-epochs200-batch4096": SIMCLR_IN1K._replace(epochs=200),
    "simclr/in1k-r50-epochs200-batch256": SIMCLR_IN1K._replace(
        epochs=200, batch_size=256, learning_rate=1.2
    ),
    "simclr/in100-r50": SIMCLR_IN1K._replace(
        images=IN100, epochs=400, batch_size=256, learning_rate=1.2
    ),
    "byol/in1k-r50": BYOL_IN1K,
    **{
        f"byol/in1k-r50-epochs{epochs}": BYOL_300._replace(epochs=epochs)
        for epochs in (200, 300, 400)
    },
    "simsiam/in1k-r50": SIMSIAM_IN1K._replace(epochs=100, batch_size=512, learning_rate=0.1),
    "simsiam/in1k-r50-epochs200": SIMSIAM_IN1K,
    "simsiam/in100-r50": SIMSIAM_IN1K._replace(images=IN100, epochs=400),
    **{
        f"simclr/{name}-r18": run._replace(config=SIMCLR).but(temperature=0.5)
        for name, run in UNICLR_CIFAR.items()
    },
    **{
        f"simsiam/{name}-r18": run._replace(
            config=SIMSIAM, views=replace(run.views, blur_probability=0.0)
        )
        for name, run in UNICLR_CIFAR.items()
    },
    "barlow_twins/in1k-r50": BARLOW_TWINS,
    "vicreg/in1k-r50": VICREG_CODE._replace(
        optimization=BARLOW_LARS | {"final_learning_rate": 0.002}, views=VICREG_VIEWS
    ).but(variance_weight=25.0),
    "vicreg/in1k-r50-code": VICREG_CODE,
    "wmse/in1k-r50": Run(
        "resnet50",
        IN1K,
        400,
        1024,
        1.2,
        UNICLR_LARS,
        SIMCLR_VIEWS,
        {
            "num_views": 4,
            "embedding_dim": 128,
            "whitening_size": 2 * 128,
            "hidden_dim": 2048,
            "num_hidden": 3 - 1,
        },
    ),
    "zero_cl/in1k-r50": ZERO_CL,
    "zero_cl/in100-r50": ZERO_CL_256._replace(images=IN100),
    **{
        f"zero_cl/{name}-r18": ZERO_CL_256._replace(
            arch=run.arch,
            images=run.images,
            epochs=1000,
            optimization={
                **ZERO_CL_256.optimization,
                "stem": "cifar",
                "weight_decay": pytest.approx(1e-4 * 0.0048 / 0.3),
            },
            views=replace(
                run.views,
                crop_area=(0.08, 1.0),
                saturation=0.2,
                blur_probability=0.0,
                second_solarize_probability=0.2,
            ),
        ).but(embedding_dim=256)
        for name, run in UNICLR_CIFAR.items()
    },
    "swav/in1k-r50": SWAV_IN1K,
    "swav/in1k-r50-2x224": SWAV_IN1K._replace(
        epochs=400, views=replace(SWAV, crop_area=(0.08, 1.0))
    ).but(num_small_views=0, prototypes_from=1 / 400),
    "swav/in1k-r50-2x224-6x96": SWAV_SMALL,
    "swav/in1k-r50-3x224-5x96": SWAV_SMALL.but(num_large_views=3, num_small_views=5),
    **{
        f"swav/in100-r18{end}": SWAV_IN100._replace(epochs=epochs).but(
            prototypes_from=1 / epochs, queue_from=15 / epochs
        )
        for epochs, end in {
            100: "",
            **{epochs: f"-epochs{epochs}" for epochs in (200, 400, 600, 800, 1000, 1200)},
        }.items()
    },
    "dino/in1k-r50": Run(
        "resnet50",
        IN1K,
        800,
        4080,
        0.3 * 4080 / 256,
        EXCLUDING_LARS | {"final_learning_rate": 0.0048},
        DINO_VIEWS,
        DINO_CONFIG,
    ),
    **{
        f"dino/{end}": run._replace(epochs=epochs, config=DINO_IN_UNICLR).but(
            last_layer_from=1 / epochs
        )
        for end, run, epochs in (
            ("in100-r50", UNICLR_IN100, 400),
            *((f"{name}-r18", run, 1000) for name, run in UNICLR_CIFAR.items()),
        )
    },
    "supervised/in1k-r50": SUPERVISED._replace(images=IN1K + LABELED),
    "supervised/in100-r50": SUPERVISED._replace(images=IN100 + LABELED).but(num_classes=100),
    "moco/in100-r50": LOOC_MOCO,
    "moco/in100-r50-rotation": LOOC_MOCO._replace(views=ROTATED),
    "moco/in100-r50-rotation-shared": LOOC_MOCO._replace(views=ROTATED).but(shared=("rotation",)),
    "moco/in100-r50-addone-color": LOOC_MOCO.but(key_only=("color",)),
    "moco/in100-r50-addone-rotation": LOOC_MOCO._replace(views=ROTATED).but(key_only=("rotation",)),
    "moco/in100-r50-color-rotation-texture": LOOC_MOCO._replace(views=ROTATED_AND_TEXTURED),
    "mocopp/in100-r50-color-rotation-texture": LOOC_MOCO._replace(
        views=ROTATED_AND_TEXTURED, config=SHORT_QUEUE | {"num_heads": 4}
    ),
    **{
        f"{method}/in100-r50-{'-'.join(heads)}": run._replace(views=views).but(designated=heads)
        for method, run, heads, views in (
            ("looc", LOOC, ("color",), MOCO_V2),
            ("looc", LOOC, ("rotation",), ROTATED),
            ("looc", LOOC, ("texture",), TEXTURED),
            ("looc", LOOC, ("color", "rotation"), ROTATED),
            ("looc", LOOC, ("rotation", "texture"), ROTATED_AND_TEXTURED),
            ("looc", LOOC, ("color", "rotation", "texture"), ROTATED_AND_TEXTURED),
            ("loocpp", LOOCPP, ("color", "rotation"), ROTATED),
            ("loocpp", LOOCPP, ("rotation", "texture"), ROTATED_AND_TEXTURED),
            ("loocpp", LOOCPP, ("color", "rotation", "texture"), ROTATED_AND_TEXTURED),
        )
    },
    "moco/in1k-r50-looc": LOOC_MOCO._replace(images=IN1K, epochs=200, drops=()),
    "loocpp/in1k-r50-color-rotation-texture": LOOCPP._replace(
        images=IN1K, epochs=200, drops=(), views=ROTATED_AND_TEXTURED
    ).but(designated=("color", "rotation", "texture")),
}
