"""Whole commands of benchmarks/fuzz.py: mutated run folders, files and command lines, in process."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.fuzz_configs import as_toml
from benchmarks.fuzz_made import made, mutated_file, write_clients
from benchmarks.fuzz_mutations import ODD_WORDS, Random, mutated_value
from benchmarks.fuzz_outcomes import Attempt, Changed, Unnamed, Wrong
from matplotlib.figure import Figure
from typer.main import get_command

from ifca.cli import main as command_line
from ifca.core.errors import InvalidInput
from ifca.methods.registry import usual_methods
from ifca.report.page_server import PageServer
from ifca.runs.config import Config, config_dict

command_line.app = get_command(command_line.app)  # type: ignore[assignment]  # once, not for each command
WHOLE = (0, 1, 2, 3, 10, 1000, 10**6, 2**31, 10**12, 2**63 - 1, 2**63, 10**30)
PLAIN = (0.0, 0.01, 0.1, 0.5, 0.9, 1.0, 2.0, 1e-300, 1e-9, 1e9, 1e30, 1e38, 1e39, 1e300)
NAMED = (
    *usual_methods(),
    "cfl",
    "clove",
    "fedem",
    "fedrc",
    "giant",
    "mocha",
    "median",
    "krum",
    "clip",
    "nnm+trimmed-mean",
)
PLAUSIBLE: dict[type, tuple[Any, ...]] = {
    bool: (True, False),
    int: WHOLE,
    float: PLAIN,
    str: (
        *NAMED,
        "adam",
        "momentum",
        "oneshot",
        "farthest",
        "balanced",
        "dealt",
        "gradient",
        "float64",
        "client",
    ),
    type(None): (*WHOLE, *PLAIN, "balanced"),
    list: ([], [0.5, 0.5], [1, 2], ["global"], ["layers.0"]),
}
"""Values by the type of a key's usual one."""
DRAWN = 0.03  # share of the executions whose figures are drawn
OURS = (".running",)  # which a command that looks for another one leaves behind


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    files = [file for file in folder.rglob("*") if file.is_file() and file.name not in OURS]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def ifca(*arguments: str, draw: bool = True) -> str:
    """A command; a refusal is an InvalidInput with its sentence. Returns what it printed.

    draw: its figures, which take longer than all the rest.
    """
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["ifca", *arguments]
    try:
        with contextlib.ExitStack() as during:
            during.enter_context(contextlib.redirect_stdout(out))
            during.enter_context(contextlib.redirect_stderr(err))
            during.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            if not draw:
                during.enter_context(patch.object(Figure, "savefig"))
            command_line.main()
    except SystemExit as ended:
        if ended.code not in (0, None):
            said = err.getvalue().strip().splitlines()
            told = [line for line in said if not line.startswith("warning: ")]
            if not said and out.getvalue():  # what verbs there are, or what is wrong with data
                raise InvalidInput(out.getvalue()) from None
            if said and not told:  # it did what it could, and says what is damaged
                return out.getvalue()
            if len(told) != 1 or not told[0].startswith("error: "):
                raise Unnamed(f"exit code {ended.code}: {said!r:.200}") from None
            raise InvalidInput(told[0]) from None
    finally:
        sys.argv = before
    return out.getvalue()


def folders(verb: str, name: str, *arguments: str) -> Callable[[Path], Attempt]:
    """A verb on a run folder in which one file was mutated; nothing changes where it is refused."""

    def prepared(folder: Path) -> Attempt:
        home = made(folder / "made")
        kept = home / name
        files = [file for file in sorted(kept.rglob("*")) if file.is_file() and file.name not in OURS]
        given = [one.format(home=home, folder=folder) for one in arguments]
        expected = _answer(verb, shutil.copytree(kept, folder / "first"), given, folder)
        shutil.rmtree(folder / "first")

        def attempt(rng: Random) -> None:
            out = folder / "run"
            shutil.rmtree(out, ignore_errors=True)
            shutil.rmtree(folder / "new", ignore_errors=True)
            shutil.copytree(kept, out)
            for file in rng.sample(files, rng.choice((1, 1, 2))):
                place = out / file.relative_to(kept)
                if rng.random() < 0.05:
                    place.unlink(missing_ok=True)
                elif rng.random() < 0.03:
                    place.unlink(missing_ok=True)
                    place.mkdir()
                else:
                    place.write_bytes(mutated_file(rng, file.name, file.read_bytes()))
            before = content(folder)
            try:
                found = _answer(verb, out, given, folder, draw=rng.random() < DRAWN)
            except InvalidInput:
                if content(folder) != before:
                    names = {n for n, b in content(folder).items() if before.get(n) != b}
                    raise Changed(f"{verb} was refused and changed {sorted(names)[:3]}") from None
                raise
            if found != expected:
                raise Wrong(f"{verb} says {found!r:.80} instead of {expected!r:.80}")

        return attempt

    return prepared


def _answer(verb: str, out: Path, given: list[str], folder: Path, *, draw: bool = True) -> object:
    """What must be the same where a command is not refused."""
    if verb == "watch":
        with PageServer(out) as server:
            return bool(server.whole() and server.state() and server.content())
    told = ifca(verb, str(out), *given, draw=draw)
    if verb == "resume":
        return {name: (out / name).read_bytes() for name in ("models.safetensors", "clients.csv")}
    if verb == "report":
        return None
    return told.replace(str(folder), "") if verb in ("assign", "predict") else None


def trainings(folder: Path) -> Attempt:
    """'ifca run' with a mutated config, for one round on small clients."""
    write_clients(folder / "clients")
    data = {"name": "folder", "path": str(folder / "clients")}
    config = config_dict(Config())
    small = {"device": "cpu", "model": {"hidden": [2]}, "data": data, "k": 2}
    free = [
        key
        for key in config
        if key not in ("rounds", "restarts", "local_steps", "erm_rounds", "local_epochs")
    ]
    once = [
        part for key in ("rounds", "restarts", "local_steps", "erm_rounds") for part in ("--set", f"{key}=1")
    ]

    def attempt(rng: Random) -> None:
        shutil.rmtree(folder / "new", ignore_errors=True)
        some = {key: config[key] for key in rng.sample(free, 3) if config[key] is not None}
        content = {**some, **small}
        for key in rng.sample(free, rng.choice((1, 1, 2))):
            content[key] = rng.choice(PLAUSIBLE.get(type(config[key]), ({},)))
        if rng.random() < 0.2:
            content = mutated_value(rng, content)
        (folder / "job.toml").write_bytes(as_toml(rng, content))
        given = (str(folder / "job.toml"), "--quiet", "--out", str(folder / "new"), *once)
        ifca("run", *given, draw=rng.random() < DRAWN)
        if not (folder / "new" / "summary.json").is_file():
            raise Wrong("a run without a summary")

    return attempt


def lines(folder: Path) -> Attempt:
    """Command lines of odd words; no verb that serves, downloads or trains for long."""
    home = made(folder / "made")
    verbs = (
        "assign",
        "predict",
        "export",
        "report",
        "check",
        "data",
        "run",
        "version",
        "init",
        "choose-k",
    )
    typed = [word for word in ODD_WORDS if word not in ("\x00", "\ud800")] + ["\udcff"]  # what can be typed
    words = (
        "--set",
        "--out",
        "--cluster",
        "--to",
        "--json",
        "--label",
        "--client",
        "--trust",
        "--quiet",
        "-o",
    )
    places = [
        str(home / name) for name in ("whole", "half", "clients", "clients/c0.npz", "tables/c0.csv", "none")
    ]
    places += ["inspect", "0", "1", "99999999999999999999", "rounds=1", "k=1", str(folder / "new")]
    before = content(home)

    def attempt(rng: Random) -> None:
        shutil.rmtree(folder / "new", ignore_errors=True)
        given = (rng.choice((words, places, places, typed)) for _ in range(rng.randrange(5)))
        arguments = [rng.choice(verbs), *map(rng.choice, given)]
        if arguments[0] in ("run", "choose-k"):
            arguments += ["--set", "rounds=0"]  # parsed and refused
        os.chdir(folder)
        ifca(*arguments)
        now = content(home)
        if any(now.get(name) != was for name, was in before.items()):
            raise Changed(f"{arguments}")

    return attempt
