"""The methods: one paper per file.

jcl.py  JCL, many positive keys by their mean and covariance
"""

from pretrain.methods.jcl import JCL, JCLConfig

METHODS = {"jcl": (JCL, JCLConfig)}
"""Name -> module (backbone, feature_dim, config) and its config."""
