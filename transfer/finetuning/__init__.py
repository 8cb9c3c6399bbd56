"""Long trainings of complete networks: detection, segmentation, semi-supervised classification.

loop.py            the training loop; GPU memory
state.py           the state of a training, its checkpoint and summary
schedule.py        settings that the loop uses, recipes, learning rate schedule and search
stream.py          order of the images, batches
options.py         user options; recipes with another length or batch size
norms.py           norm layers and their statistics after training
verify.py          checks that the loaded backbone computes the same as its source
classification.py  an image classifier with a fine-tuned backbone
"""
