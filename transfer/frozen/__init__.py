"""Features of a frozen backbone, and everything that is trained on them.

feature_cache.py   features and predictions; the cache of features, its keys, its precision
transforms.py      evaluation transforms, settings of random views
finite.py          the check that features are finite
network.py         a frozen network: device, folded batch norms, forward pass
extraction.py      extraction of what the cache lacks
feature_file.py    one file of the cache, written row by row
random_views.py    random views as in pre-training, and how much their features differ
crops.py           random crops of training images: draws, order, batches
kept_images.py     decoded images of a small set, in memory
probe_training.py  settings of a training on random crops
linear_heads.py    a pass: linear classifiers on one stream of random crops, its state on disk
running_probe.py   one of these probes while it is trained: SGD and LARS for several learning rates
                   at once, its batches
classifier.py      linear classifiers: file, results by class, test on another data set
head_shares.py     shares of a network's heads in correct predictions
few_shot_heads.py  many small classifiers on features, trained at once
nearest.py         k-nearest-neighbor votes
linear_svm.py      many linear SVMs, solved as one batch
on_features.py     kNN, linear probe and SVM on features in memory, as functions
on_images.py       features of images in memory
cost_search.py     the cost of an SVM, by cross-validation
"""
