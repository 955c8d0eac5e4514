"""The data sets of the paper, and Rotated Digits, as a config names them; each makes its federation."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from ifca.core.errors import InvalidInput
from ifca.data.dealing import Deal
from ifca.data.population import Population

if TYPE_CHECKING:  # a wrong config is refused before anything heavy is imported
    from ifca.data import Federation

STRICT = ConfigDict(extra="forbid", strict=True)
Positive = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=STRICT)
class DigitsData:
    """Rotated Digits, made from scikit-learn's bundled images."""

    name: Literal["rotated-digits"] = "rotated-digits"
    samples: Positive = 50
    """Training images per client."""
    angles: tuple[int, ...] = (0, 90, 180, 270)
    """Degrees, one cluster each."""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the images kept for testing."""
    seed: int | None = None
    """Seed of the deal; none: the run's seed."""

    def federation(self, seed: int) -> Federation:
        """Deal."""
        from ifca.data import rotated_digits

        return rotated_digits(**_arguments(self, seed))


@dataclass(frozen=True, config=STRICT)
class SyntheticData:
    """The paper's mixture of linear regressions."""

    name: Literal["synthetic"] = "synthetic"
    clients: Positive = 100
    """Number of clients, m."""
    samples: Positive = 100
    """Training samples per client, n."""
    dimension: Positive = 1000
    """Number of features, d."""
    clusters: Positive = 2
    """Number of true clusters."""
    separation: Annotated[float, Field(gt=0)] = 1.0
    """How far apart the true models are, R."""
    noise: Annotated[float, Field(ge=0)] = 0.1
    """Standard deviation of the noise of the targets, sigma."""
    norm: Literal["scaled", "unit"] = "scaled"
    """scaled: theta* = R x Bernoulli, the authors' code; unit: rescaled to norm R, the paper's text."""
    test_samples: Annotated[int, Field(ge=0)] = 100
    """Test samples per client."""
    seed: int | None = None
    """Seed of the draw; none: the run's seed."""

    def federation(self, seed: int) -> Federation:
        """Draw."""
        from ifca.data import mixture_of_regressions

        return mixture_of_regressions(**_arguments(self, seed))[0]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class RotatedData:
    """What the two rotated sets of images have in common: how they are dealt."""

    folder: str | None = None
    """Folder that holds the set's own folder or its files; none: IFCA_DATA, then the user's cache."""
    shares: tuple[float, ...] | None = None
    """Each angle's share of the clients; none: equal."""
    clients: Positive | None = None
    """m, in all; none: as many as the images allow."""
    test_clients: Positive | None = None
    """Test clients in all; none: as many as the images allow."""
    verify: bool = True
    """Refuse files that are not the public set's; without it Fashion-MNIST and the like will do."""
    seed: int | None = None
    """Seed of the deal; none: the run's seed."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class RotatedMnistData(RotatedData):
    """The paper's Rotated MNIST."""

    name: Literal["rotated-mnist"]
    samples: Positive = 200
    """n, images per client."""
    angles: tuple[int, ...] = (0, 90, 180, 270)
    """Degrees, one cluster each; the same angle several times: no clusters."""

    def federation(self, seed: int) -> Federation:
        """Read and deal."""
        from ifca.data import rotated_mnist

        return rotated_mnist(**_arguments(self, seed))


@dataclass(frozen=True, config=STRICT, kw_only=True)
class RotatedCifarData(RotatedData):
    """The paper's Rotated CIFAR."""

    name: Literal["rotated-cifar"]
    samples: Positive = 500
    """n, images per client."""
    angles: tuple[int, ...] = (0, 180)
    """Degrees, one cluster each; the same angle several times: no clusters."""

    def federation(self, seed: int) -> Federation:
        """Read and deal."""
        from ifca.data import rotated_cifar

        return rotated_cifar(**_arguments(self, seed))


@dataclass(frozen=True, config=STRICT)
class FemnistData:
    """LEAF's FEMNIST: a client per writer."""

    name: Literal["femnist"]
    folder: str | None = None
    """Folder that holds femnist/ or its files; none: IFCA_DATA, then the user's cache."""
    min_images: Positive = 100
    """Writers with fewer images are left out."""
    files: Literal["auto", "packed", "leaf"] = "auto"
    """packed: one .npz; leaf: LEAF's JSON files; auto: packed where there is one."""

    def federation(self, _seed: int) -> Federation:
        """Read; LEAF has dealt and split already."""
        from ifca.data import femnist

        return femnist(self.folder, min_images=self.min_images, files=self.files)


@dataclass(frozen=True, config=STRICT)
class WritersData:
    """MNIST by writer: a client per writer of the training images."""

    name: Literal["mnist-writers"]
    folder: str | None = None
    """Folder that holds mnist/ and mnist-writers/; none: IFCA_DATA, then the user's cache."""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of each writer's digits kept to test on."""
    min_images: Positive = 1
    """Writers with fewer digits are left out."""
    populations: bool = True
    """Give the part of NIST that a writer comes from (0 or 4) as the true cluster."""
    verify: bool = True
    """Refuse files that are not the public ones."""
    seed: int | None = None
    """Seed of the split; none: the run's seed."""

    def federation(self, seed: int) -> Federation:
        """Read and split."""
        from ifca.data import mnist_writers

        return mnist_writers(**_arguments(self, seed))


@dataclass(frozen=True, config=STRICT, kw_only=True)
class PartitionData:
    """A labelled set of samples, dealt to clients and changed by population."""

    name: Literal["partition"]
    source: Literal["digits", "mnist", "npz"] = "digits"
    """digits: scikit-learn's; mnist; npz: a file of yours with arrays x, y (and x_test, y_test)."""
    path: str | None = None
    """The .npz file, seen from where the command is given or else from the config's folder."""
    folder: str | None = None
    """Folder that holds mnist/; none: IFCA_DATA, then the user's cache."""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the samples kept to test on, where the set has no test part of its own."""
    classes: Positive | None = None
    """Number of classes; none: the largest label and one."""
    deal: Deal = Deal()
    """A table [data.deal]: how many clients, how many samples each, which skew."""
    populations: tuple[Population, ...] = (Population(),)
    """Tables [[data.populations]], a true cluster each: its share, and what it does to its samples."""
    seed: int | None = None
    """Seed of the deal; none: the run's seed."""

    def federation(self, seed: int) -> Federation:
        """Read and deal."""
        if (self.path is None) == (self.source == "npz"):
            raise InvalidInput('data.path names the file of data.source = "npz", and of no other source')
        from ifca.data import partition

        return partition(
            *self._samples(),
            deal=self.deal,
            populations=self.populations,
            test_share=self.test_share,
            classes=self.classes,
            seed=seed if self.seed is None else self.seed,
        )

    def _samples(self) -> tuple[Any, ...]:
        """x, y, and x_test, y_test where there are any."""
        from ifca.data import read_mnist
        from ifca.data.partitioning import read_samples
        from ifca.data.public.digits import read_digits

        if self.source == "mnist":
            train, test = read_mnist(self.folder)
            return (*train, *test)
        return read_digits() if self.path is None else read_samples(Path(self.path))


PublicData = RotatedMnistData | RotatedCifarData | FemnistData | WritersData | PartitionData


def _arguments(data: Any, seed: int) -> dict[str, Any]:
    """The fields of a data config as the arguments of its loader; seed: the run's."""
    given = {field.name: getattr(data, field.name) for field in fields(data) if field.name != "name"}
    return {**given, "seed": seed if data.seed is None else data.seed}
