"""The options that name an encoder which is no ResNet of torchvision's form."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

Pool = Literal["", "cls", "mean", "patch-mean", "cls+mean", "cls-of-last-4", "cls-of-last-4+mean"]
"""How tokens or maps become one feature: the network's own way if empty, the class token, the mean
of all tokens, that of the patches alone, class token and patches' mean side by side, or the class
tokens of the last four blocks, each normalized as the last (DINO's linear probe of a ViT-S), with
or without the mean of the last patches (DINOv2's)."""


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """Options for a checkpoint of another network than a ResNet."""

    encoder: str = ""
    """timm:NAME, torchvision:NAME, hf:FOLDER or FILE.py:FUNCTION, for a checkpoint that is not a
    ResNet of torchvision's form; for tasks on frozen features."""
    pool: Pool = ""
    """How tokens or maps become one feature: cls, mean, patch-mean, cls+mean, cls-of-last-4 or
    cls-of-last-4+mean; the network's own way if not given."""
    input_px: int = 0
    """Side of the encoder's images in px, where its source does not say, or for another size."""
    input_mean: tuple[float, ...] = ()
    """Mean of red, green and blue from 0 to 1 that images are normalized by, where the encoder's
    source does not say."""
    input_std: tuple[float, ...] = ()
    """Standard deviation of red, green and blue, beside --input-mean."""

    def check(self) -> None:
        """Raise ValueError for options that do not fit each other."""
        given = [name for name, value in self.given.items() if value and name != "encoder"]
        if given and not self.encoder:
            raise ValueError(
                f"--{given[0].replace('_', '-')} goes with --encoder; a ResNet states its own"
            )
        if len(self.input_mean) != len(self.input_std) or len(self.input_mean) not in (0, 3):
            raise ValueError("--input-mean and --input-std take three numbers each, and both")

    @property
    def given(self) -> dict[str, Any]:
        """Options that differ from their defaults, by name."""
        return {spec.name: value for spec in fields(self) if (value := getattr(self, spec.name))}

    @property
    def label(self) -> str:
        """The encoder without the folders of a path, as tables name it."""
        kind, _, name = self.encoder.partition(":")
        if kind == "hf":
            return f"hf:{Path(name).resolve().name}"
        path, _, function = self.encoder.rpartition(":")
        return f"{Path(path).name}:{function}" if path.endswith(".py") else self.encoder

    @property
    def words(self) -> list[str]:
        """Words of a command line that give these options, with absolute paths."""
        words: list[str] = []
        kind, _, path = self.encoder.partition(":")
        whole = self.encoder
        if kind == "hf":
            whole = f"hf:{Path(path).absolute()}"
        elif kind.endswith(".py"):
            whole = str(Path(self.encoder).absolute())
        for name, value in (self.given | {"encoder": whole} if self.encoder else {}).items():
            values = value if isinstance(value, tuple) else (value,)
            words += [f"--{name.replace('_', '-')}", *map(str, values)]
        return words


AnyEncoder = Annotated[EncoderOptions, tyro.conf.arg(name="")]
"""The options, without a prefix of their own on a command line."""
