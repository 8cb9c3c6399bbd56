"""Features of a frozen backbone, and everything that is trained on them.

features.py       evaluation transforms, extraction, the cache
feature_file.py   one file of the cache, from the first row to the last
folded.py         a frozen network in bfloat16, its batch norms folded
cost.py           estimated GPU hours of forward passes
crops.py          random crops of training images: what is drawn, in which order
linear_heads.py   linear classifiers on random crops, several learning rates at once
classifier.py     a trained linear classifier as a file
few_shot_heads.py many small classifiers on features, trained at once
nearest.py        votes of the nearest neighbors
linear_svm.py     linear SVMs by the dozen
cost_search.py    their cost, by cross-validation
"""
