"""The methods, one paper per file.

Add new ones here and to pretrain/recipes/small.py.

moco.py        MoCo v1, v2, v2+; label smoothing; augmentations for both views or for keys only
jcl.py         JCL, many positive keys as mean and covariance; InfoNCE averaged over keys
co2.py         CO2, a query and its key should have the same similarities to the queue
lorac.py       LORAC and MoCo-M, many queries per image, with embeddings of low rank
uniclr.py      SimAffinity, SimWhitening, SimTrace
looc.py        LooC, LooC++ and MoCo++, an embedding space for each augmentation
instdisc.py    instance discrimination with a memory bank of all images
simclr.py      SimCLR, the other images of the batch are negatives
byol.py        BYOL, predicts a momentum encoder's embeddings
simsiam.py     SimSiam, predicts the encoder's embeddings of the other view
barlow_twins.py  Barlow Twins, the cross-correlation of features should be the identity
vicreg.py      VICReg: variance, invariance, covariance
wmse.py        W-MSE, distances between views that are whitened in sub-batches
zero_cl.py     Zero-CL, features and images decorrelated by ZCA
swav.py        SwAV, predicts the cluster of another view
dino.py        DINO, predicts a centered momentum encoder's output for another view
ressl.py       ReSSL, a strong view should relate to past images like a weak view
nnclr.py       NNCLR, the positive is the nearest past neighbor of the other view
baselines.py   for reference: supervised training, and random initialization
"""

from collections.abc import Mapping

from pretrain.method import Method
from pretrain.methods.barlow_twins import BarlowTwins
from pretrain.methods.baselines import Random, Supervised
from pretrain.methods.byol import BYOL
from pretrain.methods.co2 import CO2
from pretrain.methods.dino import DINO
from pretrain.methods.instdisc import InstDisc
from pretrain.methods.jcl import JCL, MultiKey
from pretrain.methods.looc import LooC, MoCoPP
from pretrain.methods.lorac import LORAC
from pretrain.methods.moco import MoCo
from pretrain.methods.nnclr import NNCLR
from pretrain.methods.ressl import ReSSL
from pretrain.methods.simclr import SimCLR
from pretrain.methods.simsiam import SimSiam
from pretrain.methods.swav import SwAV
from pretrain.methods.uniclr import UniCLR
from pretrain.methods.vicreg import VICReg
from pretrain.methods.wmse import WMSE
from pretrain.methods.zero_cl import ZeroCL
from pretrain.running.plugins import with_plugins

BUILT_IN: Mapping[str, type[Method]] = {
    "moco": MoCo,
    "multi_key": MultiKey,
    "jcl": JCL,
    "co2": CO2,
    "moco_m": LORAC,
    "lorac": LORAC,
    "simaffinity": UniCLR,
    "simwhitening": UniCLR,
    "simtrace": UniCLR,
    "looc": LooC,
    "loocpp": LooC,
    "mocopp": MoCoPP,
    "instdisc": InstDisc,
    "simclr": SimCLR,
    "byol": BYOL,
    "simsiam": SimSiam,
    "barlow_twins": BarlowTwins,
    "vicreg": VICReg,
    "wmse": WMSE,
    "zero_cl": ZeroCL,
    "swav": SwAV,
    "dino": DINO,
    "ressl": ReSSL,
    "nnclr": NNCLR,
    "supervised": Supervised,
    "random": Random,
}
METHODS: Mapping[str, type[Method]] = with_plugins(BUILT_IN, "methods")
"""Name -> method, built from (backbone, feature_dim, config)."""
