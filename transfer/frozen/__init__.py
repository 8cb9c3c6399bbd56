"""Features of frozen backbones, and the classifiers on them.

feature_cache.py   features and predictions; the feature cache, its keys and precision
transforms.py      evaluation transforms, normalization, settings of random views
rankme.py          RankMe: the effective rank of features
finite.py          raises errors for features and scores that are not finite
network.py         the frozen network: device, precision, forward pass
extraction.py      extraction of missing features
feature_file.py    a file of the cache, written row by row
random_views.py    random views, and statistics of their features
crops.py           random crops of training images, and their order
image_cache.py     cache of decoded images in memory
probe_training.py  settings for training on random crops
linear_heads.py    training of linear heads on one stream of random crops, its state on disk
running_probe.py   a probe during training: SGD and LARS for several learning rates at once
classifier.py      linear classifiers: files, results by class
head_shares.py     contributions of a network's heads to correct predictions
few_shot_heads.py  few-shot classifiers, trained at once
nearest.py         kNN votes, nearest rows
linear_svm.py      linear SVMs, solved as one batch
on_features.py     functions on features in memory: kNN, linear probe, SVM
on_images.py       features of images in memory
cost_search.py     choice of SVM costs by cross-validation
"""
