"""Data of the user's own as a config names them: files, tables, datasets, a function."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from ifca.core.errors import InvalidInput
from ifca.data.fit_preparation import Override
from ifca.data.problems import Complain, refuse
from ifca.runs.own_code import Code
from ifca.runs.own_modules import own_function
from ifca.runs.scaled import Scale

if TYPE_CHECKING:  # a wrong config is refused before anything heavy is imported
    from ifca.data import Client, Federation
    from ifca.data.sources.columns import Columns, Rows

STRICT = ConfigDict(extra="forbid", strict=True)
Positive = Annotated[int, Field(ge=1)]

GIVEN = "python"  # the name of a model, or of data, that were objects of a Python program


@dataclass(frozen=True, config=STRICT, kw_only=True)
class OwnFiles:
    """What all kinds of files have in common."""

    path: str
    """Where it is, seen from where the command is given or else from the config's folder."""
    task: Literal["auto", "classification", "regression"] = "auto"
    """auto: words or whole numbers as labels make it a classification, other numbers a regression."""
    classes: Positive | None = None
    """Number of classes, whose labels are numbers from 0; none: what the labels say."""
    test_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of each client's samples kept to test on, where the data have no test part of their own."""
    standardise: Scale = "auto"
    """Every feature to mean 0 and variance 1 over the training samples of all clients; auto: of tables of
    floats for ifca's own models, and of tables with words or missing cells."""
    standardise_target: Scale = "auto"
    """Every target of a regression likewise; losses and predictions are scaled back. auto: for ifca's own
    models and loss."""
    seed: int | None = None
    """Seed of the choice of test samples; none: the run's seed."""

    def reading(self, seed: int) -> Columns:
        """How to read, in the words of the readers."""
        from ifca.data.sources.columns import Columns

        label = getattr(self, "label", None)
        return Columns(
            label=(label,) if isinstance(label, str) else tuple(label or ()),
            features=getattr(self, "features", ()),
            client=getattr(self, "client", None),
            test=getattr(self, "test", None),
            cluster=getattr(self, "cluster", None),
            kind=self.task,
            classes=self.classes,
            taken_as=getattr(self, "columns", {}),
            missing=getattr(self, "missing", "fill"),
            test_share=self.test_share,
            seed=seed if self.seed is None else self.seed,
        )

    def clients(self, seed: int, complain: Complain = refuse) -> list[Client]:
        """Read; where complain returns, what is wrong is left out."""
        raise NotImplementedError

    def federation(self, seed: int) -> Federation:
        """Read and put together."""
        from ifca.data import Federation

        return Federation.from_clients(self.clients(seed), self.classes)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FolderData(OwnFiles):
    """A folder with a file per client: .npz (x, y, optionally x_test, y_test, cluster), .csv or .parquet."""

    name: Literal["folder"]
    label: str | tuple[str, ...] | None = None
    """The column of the label (.csv, .parquet); several: so many targets; none: one that is called
    y, label, target, outcome, class or diagnosis."""
    features: tuple[str, ...] = ()
    """Columns of the features; empty: all that are nothing else."""
    test: str | None = None
    """A column that marks the rows to test on (1, true or test)."""
    cluster: str | None = None
    """A column with the true cluster, where it is known; reported against, never trained on."""
    columns: dict[str, Override] = Field(default_factory=dict)
    """What a column is taken as, where its values do not say it well: number, category, yes-no, leave out."""
    missing: Literal["fill", "refuse"] = "fill"
    """Missing cells: filled with the median or the most frequent value, and marked; or refused."""

    def clients(self, seed: int, complain: Complain = refuse) -> list[Client]:
        """A client per file."""
        from ifca.data.sources.folder import folder_clients

        return folder_clients(Path(self.path), self.reading(seed), complain)

    def rows(self, seed: int, complain: Complain = refuse) -> list[Rows]:
        """The rows of tables, before they are numbers; none where the files hold arrays."""
        from ifca.data.sources.folder import folder_rows

        return folder_rows(Path(self.path), self.reading(seed), complain)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class TableData(FolderData):
    """One .csv or .parquet file with the rows of all clients."""

    name: Literal["table"]  # type: ignore[assignment]
    client: str | None = None
    """The column that says whose a row is."""

    def clients(self, seed: int, complain: Complain = refuse) -> list[Client]:
        """A client per value of the client column."""
        from ifca.data.sources.folder import table_clients

        return table_clients(Path(self.path), self.reading(seed), complain)

    def rows(self, seed: int, complain: Complain = refuse) -> list[Rows]:
        """The rows of the table, client by client."""
        from ifca.data.sources.folder import table_rows

        return table_rows(Path(self.path), self.reading(seed), complain)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class LeafData(OwnFiles):
    """A folder of LEAF's: train/*.json and test/*.json, a client per user."""

    name: Literal["leaf"]

    def clients(self, seed: int, complain: Complain = refuse) -> list[Client]:
        """A client per user."""
        from ifca.data.sources.leaf import leaf_clients

        return leaf_clients(Path(self.path), self.reading(seed), complain)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class HuggingFaceData(OwnFiles):
    """A Hugging Face dataset (extra [hf]): path is a folder of save_to_disk, or a name on the hub."""

    name: Literal["hugging-face"]
    client: str | None = None
    """The column that says whose a row is."""
    label: str | None = None
    """The column of the label; none: label, y or target."""
    features: tuple[str, ...] = ()
    """Columns of the features, one of images or several of numbers; empty: all that are nothing else."""

    def clients(self, seed: int, complain: Complain = refuse) -> list[Client]:
        """A client per value of the client column."""
        from ifca.data.sources.huggingface import dataset_clients, read_hugging_face

        return dataset_clients(read_hugging_face(self.path), self.reading(seed), complain)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class FunctionData:
    """What a function of yours returns: {name: (train dataset, test dataset)}, Clients or a Federation."""

    name: Literal["function"]
    load: str
    """package.module:function; called with the arguments below."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of that function."""
    classes: Positive | None = None
    """Number of classes; none: the largest label and one."""
    standardise: Scale = "auto"
    """As of files."""
    standardise_target: Scale = "auto"
    """As of files."""

    def federation(self, code: Code) -> Federation:
        """Call it. code: the user's modules."""
        function = own_function("data.load", self.load, code)
        try:
            made = function(**self.arguments)
        except InvalidInput:
            raise
        except Exception as reason:
            what = f"{type(reason).__name__}: {reason}"
            raise InvalidInput(f"data.load: {self.load} failed ({what})") from reason
        return self._as_federation(made)

    def _as_federation(self, made: Any) -> Federation:
        from ifca.data import Client, Federation

        if isinstance(made, Federation):
            return made
        if isinstance(made, Mapping):
            return Federation.from_datasets(made, classes=self.classes)
        if isinstance(made, (list, tuple)) and all(isinstance(one, Client) for one in made):
            return Federation.from_clients(made, self.classes)
        kinds = "a Federation, a list of Clients or {name: (train dataset, test dataset)}"
        raise InvalidInput(f"data.load: {self.load} must return {kinds}, got {type(made).__name__}")


@dataclass(frozen=True, config=STRICT)
class GivenData:
    """A federation that was given to IFCA.fit, and saved without its data."""

    name: Literal["python"]
    client: str | int | None = None
    """The column of X that says whose a row is, where IFCA was given one."""

    def federation(self, _seed: int) -> Federation:
        """It is not kept."""
        raise InvalidInput("data.name is python: the data were given from Python and are not kept; fit again")


OwnData = FolderData | TableData | LeafData | HuggingFaceData
