"""python -m pretrain.benchmark: the speed of pre-training, measured by `pretrain.speed`."""

import sys

from pretrain.speed.benchmark import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
