"""Features of a frozen backbone, and everything that is trained on them.

features.py       evaluation transforms, extraction, the cache
feature_file.py   one file of the cache, written row by row
folded.py         a frozen network in bfloat16 with folded batch norms
cost.py           estimated GPU hours of forward passes
crops.py          random crops of training images: random draws and order
linear_heads.py   linear classifiers on random crops, several learning rates at once
classifier.py     a trained linear classifier as a file
few_shot_heads.py many small classifiers on features, trained at once
nearest.py        k-nearest-neighbor votes
linear_svm.py     many linear SVMs, solved as one batch
cost_search.py    the cost of an SVM, by cross-validation
"""
