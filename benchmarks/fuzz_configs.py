"""Configs of benchmarks/fuzz.py: files of TOML and words of --set; what is accepted says what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tomli_w
import tomllib
from benchmarks.fuzz_mutations import ODD, ODD_WORDS, Random, mutated_text, mutated_value
from benchmarks.fuzz_outcomes import Attempt, Wrong, naming

from ifca.runs.config import Config, config_dict, read_config, write_config
from ifca.runs.presets import PRESETS


def configs(folder: Path) -> Attempt:
    """TOML of a config, its values or its text mutated."""
    seeds = [file.read_text() for file in sorted(PRESETS.glob("*.toml"))]
    seeds += [write_config(Config()), write_config(read_config(None, ["k=3", "model.hidden=[4]"]))]
    parsed, file = [tomllib.loads(text) for text in seeds], folder / "job.toml"
    keys = [*config_dict(Config())]

    def attempt(rng: Random) -> None:
        i = rng.randrange(len(seeds))
        if rng.random() < 0.6:
            value = mutated_value(
                rng, {**parsed[i], **({rng.choice(keys): rng.choice(ODD)} if rng.random() < 0.5 else {})}
            )
            content = as_toml(rng, value)
        else:
            content = mutated_text(rng, seeds[i], rng.choice('=,."'))
        file.write_bytes(content)
        config = naming(file, lambda: read_config(file))
        _same_as_written(config, tomllib.loads(content.decode("utf-8-sig")))
        file.write_bytes(write_config(config).encode())
        if read_config(file) != config:
            raise Wrong(f"a config is not read back as it was written: {config}")

    return attempt


def as_toml(rng: Random, value: Any) -> bytes:
    """TOML of mutated values; what TOML cannot say is left out."""
    try:
        text = tomli_w.dumps(value)
    except (TypeError, ValueError, AttributeError):
        text = "\n".join(f"{json.dumps(key)} = {_inline(one)}" for key, one in value.items())
    deep = rng.choice((50, 500, 5000, 100000))
    return text.replace('"\u2620deep"', "[" * deep + "]" * deep).encode("utf-8", "surrogatepass")


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_inline(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return '""' if value is None else json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


def _same_as_written(config: Config, content: dict[str, Any]) -> None:
    """What stands in the file is what the config says."""
    found = config_dict(config)
    for name, value in content.items():
        mine = found.get(name)
        if (
            name not in ("data", "model", "federation", "attack", "code")
            and mine != value
            and mine != _as_float(value)
        ):
            raise Wrong(f"{name} = {value!r} was read as {mine!r}")


def _as_float(value: Any) -> Any:
    """A whole number where any number will do."""
    return float(value) if type(value) is int and abs(value) < 1e300 else value


def settings(_folder: Path) -> Attempt:
    """key=value of --set."""
    keys = [
        *config_dict(Config()),
        "data.name",
        "data.samples",
        "data.angles",
        "model.hidden",
        "model.name",
        "x",
        "",
        "data",
        "k.x",
    ]

    def attempt(rng: Random) -> None:
        given = []
        for _ in range(rng.choice((1, 1, 2, 4))):
            value = rng.choice(ODD)
            text = rng.choice((str(value), json.dumps(value), _inline(value)))
            key = rng.choice(keys)
            key = rng.choice((key, key, key, f"{key}.x", key.upper(), f" {key}", key + rng.choice(ODD_WORDS)))
            given.append(f"{key}={text}" if rng.random() < 0.95 else key + text)
        config = read_config(None, given)
        if read_config(None, given) != config:
            raise Wrong(f"{given} read twice differ")

    return attempt
