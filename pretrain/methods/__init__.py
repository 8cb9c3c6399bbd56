"""The methods: one paper per file. A new one is named here and in pretrain/recipes/__init__.py.

moco.py        MoCo v1, v2, v2+; label smoothing; augmentations shared by both views or for keys
multi_key.py   the mean InfoNCE over many positive keys
jcl.py         JCL, many positive keys by their mean and covariance
co2.py         CO2, a query and its key should have the same similarities to the queue
lorac.py       LORAC and MoCo-M, many queries per image whose embeddings span few dimensions
uniclr.py      SimAffinity, SimWhitening, SimTrace
looc.py        LooC, LooC++ and MoCo++, an embedding space for each augmentation
instdisc.py    instance discrimination by a bank of all images
simclr.py      SimCLR, the views of all other images of a batch are negatives
byol.py        BYOL, predicts a momentum encoder's embeddings
simsiam.py     SimSiam, predicts the encoder's own embeddings
barlow_twins.py  Barlow Twins, the cross-correlation of features should be the identity
vicreg.py      VICReg: variance, invariance, covariance
wmse.py        W-MSE, distances between views that are whitened in sub-batches
zero_cl.py     Zero-CL, features and images decorrelated by ZCA
swav.py        SwAV, predicts the cluster of another view
dino.py        DINO, predicts a centered momentum encoder's output for another view
ressl.py       ReSSL, a strong view relates to past images as a weak one does
nnclr.py       NNCLR, the positive is the nearest past neighbor of the other view
supervised.py  cross entropy with labels, for reference
random.py      the initialization, for reference
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pretrain.method import Method
from pretrain.methods.barlow_twins import BarlowTwins
from pretrain.methods.byol import BYOL
from pretrain.methods.co2 import CO2
from pretrain.methods.dino import DINO
from pretrain.methods.instdisc import InstDisc
from pretrain.methods.jcl import JCL
from pretrain.methods.looc import LooC, MoCoPP
from pretrain.methods.lorac import LORAC
from pretrain.methods.moco import MoCo
from pretrain.methods.multi_key import MultiKey
from pretrain.methods.nnclr import NNCLR
from pretrain.methods.random import Random
from pretrain.methods.ressl import ReSSL
from pretrain.methods.simclr import SimCLR
from pretrain.methods.simsiam import SimSiam
from pretrain.methods.supervised import Supervised
from pretrain.methods.swav import SwAV
from pretrain.methods.uniclr import UniCLR
from pretrain.methods.vicreg import VICReg
from pretrain.methods.wmse import WMSE
from pretrain.methods.zero_cl import ZeroCL
from pretrain.recipes.barlow_twins import BarlowTwinsConfig
from pretrain.recipes.baselines import RandomConfig, SupervisedConfig
from pretrain.recipes.byol import BYOLConfig
from pretrain.recipes.co2 import CO2Config
from pretrain.recipes.dino import DINOConfig
from pretrain.recipes.instdisc import InstDiscConfig
from pretrain.recipes.jcl import JCLConfig
from pretrain.recipes.looc import LooCConfig, MoCoPPConfig
from pretrain.recipes.lorac import LORACConfig
from pretrain.recipes.moco import MoCoConfig, MultiKeyConfig
from pretrain.recipes.nnclr import NNCLRConfig
from pretrain.recipes.ressl import ReSSLConfig
from pretrain.recipes.simclr import SimCLRConfig
from pretrain.recipes.simsiam import SimSiamConfig
from pretrain.recipes.swav import SwAVConfig
from pretrain.recipes.uniclr import UniCLRConfig
from pretrain.recipes.vicreg import VICRegConfig
from pretrain.recipes.wmse import WMSEConfig
from pretrain.recipes.zero_cl import ZeroCLConfig
from pretrain.running.plugins import with_plugins

OWN: Mapping[str, tuple[type[Method], Callable[..., Any]]] = {
    "moco": (MoCo, MoCoConfig),
    "multi_key": (MultiKey, MultiKeyConfig),
    "jcl": (JCL, JCLConfig),
    "co2": (CO2, CO2Config),
    "moco_m": (LORAC, partial(LORACConfig, prior="none")),
    "lorac": (LORAC, LORACConfig),
    "simaffinity": (UniCLR, partial(UniCLRConfig, variant="affinity")),
    "simwhitening": (UniCLR, partial(UniCLRConfig, variant="whitening")),
    "simtrace": (UniCLR, partial(UniCLRConfig, variant="trace")),
    "looc": (LooC, LooCConfig),
    "loocpp": (LooC, partial(LooCConfig, conv5_heads=True)),
    "mocopp": (MoCoPP, MoCoPPConfig),
    "instdisc": (InstDisc, InstDiscConfig),
    "simclr": (SimCLR, SimCLRConfig),
    "byol": (BYOL, BYOLConfig),
    "simsiam": (SimSiam, SimSiamConfig),
    "barlow_twins": (BarlowTwins, BarlowTwinsConfig),
    "vicreg": (VICReg, VICRegConfig),
    "wmse": (WMSE, WMSEConfig),
    "zero_cl": (ZeroCL, ZeroCLConfig),
    "swav": (SwAV, SwAVConfig),
    "dino": (DINO, DINOConfig),
    "ressl": (ReSSL, ReSSLConfig),
    "nnclr": (NNCLR, NNCLRConfig),
    "supervised": (Supervised, SupervisedConfig),
    "random": (Random, RandomConfig),
}
METHODS = with_plugins(OWN, "methods")
"""Name -> method, built from (backbone, feature_dim, config), and its config."""
