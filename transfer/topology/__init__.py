"""Which network a file's tensors belong to, told by the running statistics of its norms.

known_networks.py known networks and inputs that share names and shapes of tensors
statistics.py      distance between the stored statistics and those of natural images
check.py           scores of all variants, what they prove, and the check before an evaluation
"""
