"""What two or more methods share.

resnet.py            backbones in torchvision's layout
projector.py         the MLP after the backbone
momentum_encoder.py  an encoder that follows another
queue.py             the ring of past keys
queue_logsumexp.py   log-sum-exp over a long queue in little memory
shuffle_bn.py        batches for the key encoder, mixed over processes
gather.py            rows of all processes, with and without gradient
ramp.py              how a weight grows over a run
"""
