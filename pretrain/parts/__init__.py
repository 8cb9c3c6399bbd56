"""Parts that two or more methods share.

view.py                     the views that a method wants; options that select a part's variant
resnet.py                   backbones in torchvision's layout; activations computed again
heads.py                    projectors, and several embedding spaces on one backbone
momentum_encoder.py         a moving average of an encoder; a query's many positive keys
queue.py                    a ring buffer of past keys; log-sum-exp and KL divergence over it
whitening.py                cosines of whitened rows, trace of the whitened cross-covariance
losses.py                   data type, negative cosine, correlation, entropies, a key among a queue
sync_bn.py                  batch norm over all processes, by kernels or a formula; ShuffleBN
gather.py                   rows and sums over all processes, with and without gradient
"""
