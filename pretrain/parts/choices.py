"""Values of options that select a part's variant; apart from the parts, to need no torch."""

from typing import Literal

Stem = Literal["imagenet", "cifar"]
Projector = Literal["mlp", "linear"]
KeyForward = Literal["concatenated", "per_view"]
"""Images that share batch statistics: all M views of a batch, or those of one view."""
