"""Parts that two or more methods share.

view.py                     the views that a method wants
choices.py                  options that select a part's variant
resnet.py                   backbones in torchvision's layout
heads.py                    several embedding spaces on one backbone
projector.py                the MLP after the backbone
momentum_encoder.py         a moving average of an encoder
queue.py                    a ring buffer of past keys
queue_logsumexp.py          log-sum-exp over a long queue in little memory
queue_divergence.py         KL divergence of two embeddings' softmaxes over the queue
instance_discrimination.py  InfoNCE and its accuracy
positive_keys.py            a query and many keys of one image
negative_cosine.py          distance of predictions from their targets
nuclear_norm.py             sum of singular values of many small matrices
multi_crop.py               views of several sizes, cross entropy between views
whitening.py                cosines of whitened rows
whitened_trace.py           trace of the whitened cross-covariance
cross_moment.py             correlation of different features
loss_dtype.py               the data type that losses are computed in
fused_batch_norm.py         batch norm over all processes by torch's kernels for GPUs
shuffle_bn.py               batches of the key encoder, mixed over processes
sync_bn.py                  batch norm over all processes
upload.py                   copies of what the host has drawn, without a wait
gather.py                   rows and sums over all processes, with and without gradient
"""
