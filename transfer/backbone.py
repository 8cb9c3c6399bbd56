"""The names that `transfer.encoders` had before ResNets and other encoders became one class."""

from transfer.encoders.encoder import IMAGENET_MEAN as IMAGENET_MEAN
from transfer.encoders.encoder import IMAGENET_STD as IMAGENET_STD
from transfer.encoders.encoder import MEAN_RANGE as MEAN_RANGE
from transfer.encoders.encoder import SIDE_RANGE as SIDE_RANGE
from transfer.encoders.encoder import STD_RANGE as STD_RANGE
from transfer.encoders.encoder import BackboneError as BackboneError
from transfer.encoders.encoder import Channels as Channels
from transfer.encoders.encoder import Encoder as Backbone
from transfer.encoders.encoder import InputFormat as InputFormat
from transfer.encoders.encoder import Precision as Precision
from transfer.encoders.encoder import default_name as default_name
from transfer.encoders.encoder import random_backbone as random_backbone
from transfer.encoders.encoder import require_file as require_file
from transfer.encoders.encoder import with_heads as with_heads
from transfer.encoders.opening import FORMAT as FORMAT
from transfer.encoders.opening import inspect_file as inspect_file
from transfer.encoders.opening import load_backbone as load_backbone

__all__ = ["Backbone"]
