"""run.json and code/ of a run folder: which run it is, the user's code it runs, and who made it."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from ifca.core.errors import InvalidInput
from ifca.data.files import write_atomically
from ifca.data.formats.json_file import read_record
from ifca.data.formats.whole_file import read_whole
from ifca.runs.config import Config
from ifca.runs.data_config import STRICT
from ifca.runs.own_code import Code, Source, find_code
from ifca.runs.own_data_config import FunctionData
from ifca.runs.signature import is_signed, sign

RUN, CODE = "run.json", "code"
FIELDS = ("algorithm", "aggregation", "model.name", "model.loss", "model.metrics", "data.load")
"""The keys of a config that can name a function."""


@dataclass(frozen=True, config=STRICT)
class KeptFile:
    """A file of the user's that the run keeps a copy of."""

    sha256: str
    file: str  # where it lay


@dataclass(frozen=True, config=STRICT)
class RunRecord:
    """What run.json holds."""

    run: str  # an id, drawn once
    code: dict[str, KeptFile]  # by its path below code/
    signature: str | None = None
    config: dict[str, Any] | None = None  # what decides the results; None: of an older version


def named_functions(config: Config) -> list[tuple[str, str]]:
    """The functions that a config names, each with its key; to find one, its module is run."""
    model, data = config.model, config.data
    named = [("algorithm", name) for name in (config.algorithm, *config.baselines) if ":" in name]
    named += [("aggregation", config.aggregation)] if ":" in config.aggregation else []
    named += [("model.name", model.name)] if ":" in model.name else []
    named += [("model.loss", model.loss)] if model.loss is not None else []
    named += [("model.metrics", name) for name in model.metrics]
    return named + ([("data.load", data.load)] if isinstance(data, FunctionData) else [])


def code_of(config: Config) -> Code:
    """The user's files that a config needs, as they are now: in the folder code, then where we stand."""
    named = named_functions(config)
    return find_code([name.partition(":")[0] for _, name in named], code_folders(config)) if named else Code()


def code_folders(config: Config) -> list[Path]:
    """Where the user's files are looked for: in the folder code, then where we stand."""
    given = [] if config.code is None else [Path(config.code).resolve()]
    return list(dict.fromkeys([*given, Path.cwd()]))


def begin_run(out: Path, config: Config, code: Code, deciding: dict[str, Any]) -> None:
    """Draw the id of a new run, keep a copy of the user's code, and sign both where there is any code.

    deciding: the part of the config that may not change from now on.
    """
    for source in code.sources:
        file = out / CODE / source.path
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, source.content)
    kept = {source.path: KeptFile(source.sha256, source.beside) for source in code.sources}
    record = RunRecord(secrets.token_hex(16), kept, config=deciding)
    if named_functions(config):
        record = replace(record, signature=sign(_signed(record, config)))
    write_atomically(out / RUN, json.dumps(asdict(record), indent=1).encode())


def run_id(out: Path) -> str | None:
    """The id of a run; None: of a folder that was made before runs had one."""
    record = _record(out)
    return None if record is None else record.run


def begun_config(out: Path) -> dict[str, Any] | None:
    """What decided the results when the run began; None: an older version did not keep it."""
    record = _record(out)
    return None if record is None else record.config


def kept_code(out: Path, config: Config, trust: bool, fields: tuple[str, ...] = FIELDS) -> Code:
    """The code that a run folder keeps, to call what these keys of its config name.

    Refused: code of a folder that was not made by this user here, unless trust says to run it; files that are
    not those that the run began with. A folder that was made before runs kept code has it from where it lies.
    """
    named = [(field, name) for field, name in named_functions(config) if field in fields]
    if not named:
        return Code()
    record = _record(out)
    if not trust and not (record and is_signed(_signed(record, config), record.signature)):
        raise InvalidInput(_refusal(out, record, named))
    if record is None:
        return code_of(config)
    return Code(tuple(_source(out, path, kept) for path, kept in sorted(record.code.items())))


def check_code(out: Path, code: Code) -> None:
    """Refuse to go on in a run folder with other files than it was begun with."""
    record = _record(out)
    if record is None:
        return
    was = {path: kept.sha256 for path, kept in record.code.items()}
    now = {source.path: source.sha256 for source in code.sources}
    for path in sorted({*was, *now}):
        if was.get(path) != now.get(path):
            raise InvalidInput(
                f"{out}: was begun with another {path} than the one that is used now (its copy: {out / CODE})"
            )


def _refusal(out: Path, record: RunRecord | None, named: list[tuple[str, str]]) -> str:
    """One sentence that names the code that would run."""
    kept = Code(tuple(Source(path, "", b"", "") for path in record.code) if record else ())
    told = []
    for field, name in named:
        source = kept.module(name.partition(":")[0])
        told.append(f"{field} = {name}" + ("" if source is None else f" ({out / CODE / source.path})"))
    return (
        f"{out}: was not made by you on this machine, and opening it runs code: {', '.join(told)}; "
        "if you trust it, say --trust (in Python trust=True)"
    )


def _signed(record: RunRecord, config: Config) -> dict[str, Any]:
    """What a signature stands for: the run, its code, and what is called with which arguments."""
    arguments = config.data.arguments if isinstance(config.data, FunctionData) else {}
    code = {path: asdict(kept) for path, kept in record.code.items()}
    return {"run": record.run, "code": code, "named": named_functions(config), "arguments": arguments}


def _source(out: Path, path: str, kept: KeptFile) -> Source:
    file = out / CODE / path
    if not file.is_file():
        raise InvalidInput(f"{file}: is missing; the run began with it")
    source = Source(path, str(file.resolve()), read_whole(file), kept.file)
    if source.sha256 != kept.sha256:
        raise InvalidInput(f"{file}: is not the file that the run began with (its hash is not that of {RUN})")
    return source


def _record(out: Path) -> RunRecord | None:
    file = out / RUN
    if not file.exists():
        return None
    return read_record(file, RunRecord)
