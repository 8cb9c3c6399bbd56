"""What two or more methods share.

view.py                     what a method asks of its views
resnet.py                   backbones in torchvision's layout
heads.py                    several embedding spaces on one backbone
projector.py                the MLP after the backbone
momentum_encoder.py         an encoder that follows another
queue.py                    the ring of past keys
queue_logsumexp.py          log-sum-exp over a long queue in little memory
queue_divergence.py         how differently two rows see the queue
instance_discrimination.py  InfoNCE and its accuracy
positive_keys.py            many keys of one image
negative_cosine.py          how far predictions point away from their targets
nuclear_norm.py             sum of singular values of many small matrices
multi_crop.py               views of several sizes that predict each other
whitening.py                cosines of whitened rows
whitened_trace.py           trace of the whitened cross-covariance
cross_moment.py             how strongly different features go together
precision.py                numbers that losses are computed in
shuffle_bn.py               batches for the key encoder, mixed over processes
sync_bn.py                  batch norm over all processes
gather.py                   rows of all processes, with and without gradient
ramp.py                     how a weight grows over a run
"""
