"""Speed: two or more ways to do the same, in turn in one process, and their ratio.

python -m benchmarks.speed NAME [options]   (NAME --help: its options)

losses.py       losses and a prior of pre-training, against the usual ways
steps.py        training steps of pre-training: images/s; JCL beside MoCo; ours beside lightly's
lightly_methods.py  the two methods of lightly that steps.py runs
views.py        views of pre-training against torchvision's usual pipeline
crops.py        crops of frozen networks against torchvision's usual pipeline
features.py     frozen features in bfloat16 against float32
encoders.py     features of other encoders against the loop of timm's validate.py
probe.py        seven learning rates of a linear probe together against one by one
svm.py          the batched SVM solver against scikit-learn's
harness.py      how all of them are timed
"""
