"""python -m benchmarks.topology --photographs DIR: do running statistics tell networks apart?

Trains every known variant of a network for some hundred steps, then asks of each which variant its
running statistics fit best, on photographs that it has not seen. Writes a table with the errors.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
import tyro
from torch import Tensor, nn

from transfer.convert.architectures import Stem
from transfer.convert.resnet import build_resnet
from transfer.datasets.images import DataError
from transfer.record import commit
from transfer.running.atomic_files import write_whole
from transfer.running.option_ranges import OptionError, Range, check_ranges
from transfer.topology.check import BETTER, CLEARLY_BETTER, NUM_IMAGES, best_score, resized
from transfer.topology.known_networks import INPUTS, NETWORKS, Network
from transfer.topology.natural_images import natural_images
from transfer.topology.statistics import score

STORED_PX = 160
"""Size of the photographs in memory, from which crops are taken."""
STUDY_RANGES: Mapping[str, Range] = {
    "batch_size": Range(2, 2**16),
    "steps": Range(1, 2**31 - 1),
}
"""Range of every numeric option, by the name of its field."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Train variants of ResNets and count how often their running statistics name them."""

    photographs: Path
    """Folder with at least 200 photographs (JPEG) anywhere below it."""
    resnet18: tuple[Stem, ...] = ("imagenet", "cifar")
    """Stems of ResNet-18: imagenet has a 7x7 convolution, cifar a 3x3 one."""
    resnet50: tuple[Stem, ...] = ("imagenet",)
    """Stems of ResNet-50, whose networks take three times as long."""
    steps: int = 200
    """Optimizer steps of each network."""
    batch_size: int = 12
    """Images per step."""
    runs: Path = Path("runs")
    """Trained networks are kept below runs/topology, so that the same command goes on."""
    results: Path = Path("results")
    """Folder to write topology.md to."""

    def __call__(self) -> int:
        """Train what is missing and write the table; return the exit status.

        OptionError for a number out of range; DataError for a folder with too few photographs.
        """
        check_ranges(self, STUDY_RANGES)
        images = natural_images(self.photographs, count=512, size_px=STORED_PX)
        if len(images) < 200:
            raise DataError(
                f"{self.photographs} has {len(images)} photographs; at least 200 are needed"
            )
        unseen, seen = images[:NUM_IMAGES], images[NUM_IMAGES:]
        networks = [("resnet18", stem) for stem in self.resnet18]
        networks += [("resnet50", stem) for stem in self.resnet50]
        tables = [self.table(arch, stem, seen, unseen) for arch, stem in networks]
        page = self.results / "topology.md"
        write_whole(page, self.page(tables, len(seen)).encode())
        print(f"{len(tables)} tables  ->  {page}")
        return 0

    def table(self, arch: str, stem: Stem, seen: Tensor, unseen: Tensor) -> "Separation":
        """Return the scores of every variant's statistics under every variant's network.

        seen, unseen: photographs (n, 3, H, W) to train and to test on.
        """
        known = [network for network in NETWORKS if network.fits(arch, stem)]
        size_px = 64 if stem == "imagenet" else 32
        at_sizes = resized(unseen, (2 * size_px, size_px))
        rows = []
        for number, truth in enumerate(known):
            weights = self.weights(arch, stem, truth, seen, size_px)
            rows.append(tuple(_score(arch, stem, weights, network, at_sizes) for network in known))
            print(f"{arch} {stem}  {number + 1}/{len(known)}  {truth.name}", file=sys.stderr)
        names = tuple(network.name for network in known)
        return Separation(arch=arch, stem=stem, size_px=size_px, names=names, scores=tuple(rows))

    def weights(
        self, arch: str, stem: Stem, variant: Network, images: Tensor, size_px: int
    ) -> dict[str, Tensor]:
        """Return the tensors of the trained variant by torchvision's names, kept in a file.

        images: (n, 3, H, W).
        """
        word = "-".join(variant.name.replace(",", "").split())
        kept = self.runs / "topology" / f"{arch}-{stem}-{self.steps}-{self.batch_size}-{word}.pt"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            torch.save(train(arch, stem, variant, images, size_px, self), kept)
        weights: dict[str, Tensor] = torch.load(kept, weights_only=True)
        return weights

    def page(self, tables: Sequence["Separation"], num_seen: int) -> str:
        """Return the page in markdown."""
        errors = sum(len(table.errors) for table in tables)
        asked = sum(len(table.names) for table in tables)
        return "\n".join(
            [
                "# Which network do running statistics fit?",
                "",
                f"Each row is a network trained here for {self.steps} steps of {self.batch_size} "
                f"images on {num_seen} photographs, every photograph a class of its own. Each "
                f"column is a network that computes with the row's tensors on {NUM_IMAGES} other "
                f"photographs. Entries: divergence of the statistics found from those stored, "
                f"geometric mean over the norms in units of 0.001 nats; the smallest of a row is "
                f"bold. Written by `python -m benchmarks.topology --photographs DIR "
                f"--steps {self.steps} --batch-size {self.batch_size}`, commit {commit()}.",
                "",
                f"Smallest in its row is the true network: {asked - errors} of {asked} times. An "
                f"assumed network is refused where the best divergence of its row is below "
                f"{CLEARLY_BETTER} of its own, called unclear below {BETTER}, else not "
                f"contradicted. The photographs are shown at the size of the training and at twice "
                f"that size; the smaller divergence counts.",
                *(line for table in tables for line in ("", *table.lines())),
                "",
            ]
        )


@dataclass(frozen=True, kw_only=True)
class Separation:
    """Scores of trained variants (rows) under every variant (columns), in nats."""

    arch: str
    stem: str
    size_px: int
    names: tuple[str, ...]
    scores: tuple[tuple[float, ...], ...]

    @property
    def errors(self) -> list[str]:
        """Variants whose statistics fit another variant best."""
        return [
            name
            for number, (name, row) in enumerate(zip(self.names, self.scores, strict=True))
            if min(row) < row[number]
        ]

    def share(self, truth: int, assumed: int) -> float:
        """Return the smallest score of the true variant's row as a share of the assumed one's."""
        return min(self.scores[truth]) / self.scores[truth][assumed]

    def lines(self) -> list[str]:
        """Return heading, table and error rates in markdown."""
        count = len(self.names)
        wrong = [(t, a) for t in range(count) for a in range(count) if t != a]
        shares = {pair: self.share(*pair) for pair in wrong}
        refuted = [pair for pair in wrong if shares[pair] < CLEARLY_BETTER]
        unclear = [pair for pair in wrong if CLEARLY_BETTER <= shares[pair] < BETTER]
        missed = [pair for pair in wrong if shares[pair] >= BETTER]
        doubted = [t for t in range(count) if self.share(t, t) < BETTER]
        false = [t for t in doubted if self.share(t, t) < CLEARLY_BETTER]
        header = ["trained as", *(str(number + 1) for number in range(count))]
        lines = [
            f"## {self.arch}, {self.stem} stem, {self.size_px} px",
            "",
            f"| {' | '.join(header)} |",
            f"|{'---|' * (count + 1)}",
        ]
        for number, (name, row) in enumerate(zip(self.names, self.scores, strict=True)):
            cells = [f"{1000 * v:.2f}" if v > min(row) else f"**{1000 * v:.2f}**" for v in row]
            lines.append(f"| {number + 1} {name} | {' | '.join(cells)} |")
        lines += [
            "",
            f"Of {count} true networks {count - len(doubted)} are not contradicted, "
            f"{len(doubted)} called unclear or refused ({len(false)} refused). Of {len(wrong)} "
            f"wrong assumptions {len(refuted)} are refused, {len(unclear)} called unclear "
            f"and {len(missed)} not contradicted.",
            *self.listed("Not contradicted though wrong", missed),
        ]
        return lines

    def listed(self, title: str, pairs: Sequence[tuple[int, int]]) -> list[str]:
        """Return a paragraph that names the pairs of true and assumed variants, if any."""
        words = "; ".join(f"{self.names[t]} taken for {self.names[a]}" for t, a in pairs)
        return ["", f"{title}: {words}."] if words else []


def train(
    arch: str, stem: Stem, variant: Network, images: Tensor, size_px: int, study: Study
) -> dict[str, Tensor]:
    """Return the tensors of the variant, trained to tell the photographs (n, 3, H, W) apart.

    SGD with momentum 0.9 and a cosine rate from 0.05; random resized crops, flips, brightness.
    """
    torch.manual_seed(0)
    network = build_resnet(arch, stem)
    names = list(network.state_dict())
    variant.change(network)
    head = nn.LazyLinear(len(images))
    with torch.no_grad():
        head(network.eval()(torch.zeros(1, 3, size_px, size_px)))
    model = nn.Sequential(network, head).train()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, fused=True
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, study.steps)
    for _ in range(study.steps):
        labels = torch.randint(len(images), (study.batch_size,))
        crops = torch.stack([random_crop(images[i], size_px) for i in labels.tolist()])
        optimizer.zero_grad()
        F.cross_entropy(model(INPUTS[0](crops)), labels).backward()
        optimizer.step()
        schedule.step()
    # a variant may wrap a norm in a module with a filter, but the order of tensors stays
    return dict(zip(names, network.state_dict().values(), strict=True))


def random_crop(image: Tensor, size_px: int) -> Tensor:
    """Return a random crop (3, S, S) of 20 to 100 % of an image (3, H, W), flipped, brightened."""
    side = int(image.shape[-1] * (0.2 + 0.8 * torch.rand(()).item()) ** 0.5)
    top, left = (int(torch.randint(image.shape[-1] - side + 1, ())) for _ in range(2))
    crop = image[None, :, top : top + side, left : left + side]
    crop = F.interpolate(crop, size=size_px, mode="bilinear", antialias=True)[0]
    crop = crop.flip(-1) if torch.rand(()) < 0.5 else crop
    return (crop * (0.6 + 0.8 * torch.rand(()))).clamp(0, 1)


def _score(
    arch: str, stem: Stem, weights: dict[str, Tensor], network: Network, at_sizes: dict[int, Tensor]
) -> float:
    """Return the smallest score of the network over the sizes of the photographs."""
    model = build_resnet(arch, stem)
    model.load_state_dict(weights)
    network.change(model)
    return best_score(network.name, at_sizes, lambda x: score(model.eval(), INPUTS[0](x))).nats


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    study = tyro.cli(Study, args=words, description=__doc__)
    try:
        return study()
    except (DataError, OptionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
