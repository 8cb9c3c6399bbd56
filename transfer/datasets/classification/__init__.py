"""Data sets with one label per image; each file holds one set, or a family with one layout.

aircraft.py    FGVC-Aircraft
birdsnap.py    Birdsnap
caltech101.py  Caltech-101
cars.py        Stanford Cars
cifar.py       CIFAR-10 and CIFAR-100
cub200.py      CUB-200-2011
dtd.py         Describable Textures
flowers.py     Oxford 102 Flowers
food.py        Food-101
inat1k.py      iNaturalist 2019, with LooC's larger test set
pets.py        Oxford-IIIT Pets
places365.py   Places365-standard
sun397.py      SUN397
"""
