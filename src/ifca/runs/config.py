"""The config of a run: the recipe and what it runs on. A wrong key or type fails naming the field."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, ValidationError
from pydantic.dataclasses import dataclass

from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.data.formats.json_file import schema
from ifca.data.formats.toml_file import read_toml
from ifca.engines.precision import Precision
from ifca.runs.attack_config import AttackConfig
from ifca.runs.auto_k import K
from ifca.runs.auto_rounds import Rounds, rounds_of
from ifca.runs.complaints import complaints
from ifca.runs.data_config import STRICT, DigitsData, PartitionData, Positive, PublicData, SyntheticData
from ifca.runs.federation_config import FederationConfig
from ifca.runs.own_data_config import FunctionData, GivenData, HuggingFaceData, OwnData
from ifca.runs.presets import DEFAULT, PRESETS
from ifca.runs.settings import set_key

DEFAULT_CONFIG = PRESETS / f"{DEFAULT}.toml"


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """The model that every cluster trains."""

    name: str = "auto"
    """linear, logistic, mlp, cnn, cifar-cnn, femnist-cnn, or package.module:function of your own. auto: for
    images cnn, for tables mlp, linear or logistic where there are few samples, else mlp. linear has an
    intercept, but not for data.name = "synthetic", the paper's experiment."""
    hidden: tuple[Positive, ...] | None = None
    """Widths of the hidden layers of mlp; none: 200, of auto as wide as two training samples for each
    parameter allow (at most 128)."""
    loss: str | None = None
    """package.module:function of your own: outputs, y -> a loss per sample [n]; none: cross-entropy, or
    squared error in regression."""
    metrics: tuple[str, ...] = ()
    """package.module:function of your own: outputs, y -> a number per sample [n], or one for a client's test
    data. Reported beside the test loss, under the function's name."""


@dataclass(frozen=True, config=STRICT)
class Config(Recipe):
    """Everything that decides a run."""

    k: K = None  # type: ignore[assignment]  # a recipe has the number that it comes to
    """Number of clusters, of ifca, clove-auto, cfl, stocfl and sr-fca the most; "auto" (these five): as many
    as they find, at most 10 or the number of clients; none: auto for these five, 2 for other methods."""
    rounds: Rounds = Recipe.rounds  # type: ignore[assignment]  # a recipe has a number
    """T, number of parallel iterations; "auto": early_stopping, after 500 rounds at the latest."""
    on_divergence: Literal["halve", "stop"] = "halve"
    """halve: when training diverges, go back to the models with the lowest loss so far and halve the step, at
    most 10 times. stop: end with an error."""
    engine: Literal["loop", "vectorised", "flower"] = "vectorised"
    """loop: one client at a time; vectorised: chunks of clients at once. Same results. flower: set by 'ifca
    federate', clients in processes or on machines of their own."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: CUDA where there is one."""
    precision: Precision = "float32"
    """float32, float64; on CUDA also tf32 or bfloat16: faster products of fewer digits, never silently."""
    compiled: bool = False
    """Let torch.compile fuse mini-batch steps on CUDA (takes a minute at the start)."""
    memory_budget: Positive | None = None
    """MiB that chunks of clients may take; none: 2048, on a GPU half of what is free."""
    fast_path: bool = True
    """Let the vectorised engine use its exact fast path where it applies (full-batch training)."""
    checkpoint_every: Positive = 1
    """Write a checkpoint after every so many rounds."""
    warm_start: str | None = None
    """A run's folder to take the initial models from."""
    continues: str | None = None
    """Set by 'ifca continue': the run whose models, columns, scales and class names are gone on with."""
    baselines: tuple[str, ...] = ()
    """Algorithms to train after this one on the same data, for comparison."""
    code: str | None = None
    """Folder of your own modules (model, loss, metrics, data); none: that of the config file. What is not
    there is looked for where the command is given, then among installed packages."""
    data: Annotated[
        DigitsData | SyntheticData | OwnData | FunctionData | GivenData | PublicData,
        Field(discriminator="name"),
    ] = DigitsData()
    """The federation."""
    model: ModelConfig = ModelConfig()
    """The model."""
    federation: FederationConfig = FederationConfig()
    """Terms of 'ifca federate'; no other command looks at them."""
    attack: AttackConfig | None = None
    """A rehearsal: some clients attack."""

    def __post_init__(self) -> None:
        """Refuse what no recipe may hold."""
        values = {field.name: getattr(self, field.name) for field in fields(Recipe)}
        Recipe(**values | ({} if isinstance(self.k, int) else {"k": Recipe.k}) | rounds_of(values))


def check_names(config: Config, source: Path | str) -> None:
    """Refuse methods and rules that nobody knows; the user's own, module:NAME, are found with their code."""
    from ifca.core.attacks import kind_of
    from ifca.methods import method_of
    from ifca.methods.aggregation import rule_of

    try:
        for name in (config.algorithm, *config.baselines):
            if ":" not in name:
                method_of(name)
        if ":" not in config.aggregation:
            rule_of(config)
        if config.attack is not None:
            kind_of(config.attack.name)
    except InvalidInput as reason:
        raise InvalidInput(f"{source}: {reason}") from None


def read_config(file: Path | None, settings: list[str] | None = None, **overrides: Any) -> Config:
    """A TOML file (None: the default job), then key=value settings, then overrides that are not None."""
    config, source = _read(file, settings, overrides)
    check_names(config, source)
    return config


def read_run_config(file: Path) -> Config:
    """The config of a run that was begun; its method may be one that only the run knew."""
    return _read(file, None, {})[0]


def _read(
    file: Path | None, settings: list[str] | None, overrides: dict[str, Any]
) -> tuple[Config, Path | str]:
    """A config, and what complaints call it."""
    source = file or DEFAULT_CONFIG
    if source.is_dir():
        raise InvalidInput(f"{source}: is a folder; a config is a .toml file")
    if not source.exists():
        raise InvalidInput(f"{source}: no such config file")
    content = read_toml(source)
    named = source if file and not settings else f"{source.name} with --set" if settings else "default config"
    return config_of(content, settings, overrides, named, file), named


def config_of(
    content: dict[str, Any],
    settings: list[str] | None,
    overrides: dict[str, Any],
    named: Path | str,
    file: Path | None = None,
) -> Config:
    """Content as TOML gives it, then settings, then overrides. named: in complaints; file: its own."""
    for setting in settings or []:
        set_key(content, setting)
    content |= {name: value for name, value in overrides.items() if value is not None}
    if file is not None:
        _look_beside(file, content)
    return parse_config(content, named)


def _look_beside(file: Path, content: dict[str, Any]) -> None:
    """What a config names is also looked for beside it: modules, and data that are not where we stand."""
    if _names_own_code(content):
        content.setdefault("code", str(file.parent))
    data = content.get("data")
    path = data.get("path") if isinstance(data, dict) else None
    if isinstance(path, str) and not _exists(Path(path)) and _exists(file.parent / path):
        content["data"] = {**content["data"], "path": str(file.parent / path)}


def _exists(path: Path) -> bool:
    """Whether something is there; no path that the system takes: no."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _names_own_code(content: dict[str, Any]) -> bool:
    """Whether a config names a function of the user's own."""
    model, data = content.get("model"), content.get("data")
    named = [*model.values()] if isinstance(model, dict) else []
    named += [content.get(key) for key in ("algorithm", "aggregation", "baselines")]
    named += [data.get("load")] if isinstance(data, dict) else []
    flat = [part for value in named for part in (value if isinstance(value, list) else [value])]
    return any(isinstance(part, str) and ":" in part for part in flat)


def parse_config(content: dict[str, Any], source: Path | str) -> Config:
    """Validate; complaints name the file, the field and what was expected."""
    text = json.dumps(content, default=str)
    try:
        json.dumps(content, default=str, ensure_ascii=False).encode()
    except UnicodeEncodeError as reason:
        part = reason.object[: reason.end].rpartition('"')[2]  # of the text that holds them
        raise InvalidInput(f"{source}: {part!r} ends in bytes that are no UTF-8; rename it") from None
    if "\\u0000" in text:
        raise InvalidInput(f"{source}: a text holds a null character, which no name and no path can")
    try:
        return schema(Config).validate_json(text)  # type: ignore[no-any-return]
    except ValidationError as errors:
        raise InvalidInput(f"{source}: {complaints(errors, Config)}") from None


def write_config(config: Config) -> str:
    """The complete config as TOML."""
    content = config_dict(config)
    unset = [name for name, value in content.items() if value is None]
    return f"# not set: {', '.join(unset)}\n" + tomli_w.dumps(without_none(content))


def with_absolute_paths(config: Config) -> Config:
    """Folders named from where the command is given, so that a run can be resumed from anywhere."""
    if config.code is not None:
        config = replace(config, code=str(Path(config.code).resolve()))
    hub = isinstance(config.data, HuggingFaceData) and not Path(config.data.path).exists()
    if isinstance(config.data, OwnData) and not hub:
        config = replace(config, data=replace(config.data, path=str(Path(config.data.path).resolve())))
    elif isinstance(config.data, PublicData) and config.data.folder is not None:
        folder = str(Path(config.data.folder).expanduser().resolve())
        config = replace(config, data=replace(config.data, folder=folder))
    elif isinstance(config.data, PartitionData) and config.data.path is not None:
        config = replace(config, data=replace(config.data, path=str(Path(config.data.path).resolve())))
    before = (
        None if one is None else str(Path(one).resolve()) for one in (config.warm_start, config.continues)
    )
    return replace(config, **dict(zip(("warm_start", "continues"), before, strict=True)))  # type: ignore[arg-type]


def config_dict(config: Config) -> dict[str, Any]:
    """The config as plain JSON values."""
    result: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    return result


def without_none(content: Any) -> Any:
    """The same without what is not set, which TOML cannot say."""
    if isinstance(content, list):
        return [without_none(part) for part in content]
    if not isinstance(content, dict):
        return content
    return {name: without_none(value) for name, value in content.items() if value is not None}
