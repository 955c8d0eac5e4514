"""'ifca reproduce': lines that survive a kill, what they come to, tables, figures, the page of results."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ifca.cli import main as cli
from ifca.core.errors import InvalidInput
from ifca.data.files import working_in
from ifca.paper.experiments import MODULES, experiment, run_unit_of
from ifca.paper.panels import panels
from ifca.paper.reproduce import Choice, reproduce
from ifca.paper.statistics import mean_std
from ifca.paper.summary import finished, summary, write_summary
from ifca.report.paper.paper_figures import write_figure
from ifca.report.paper.paper_tables import markdown, table_of
from ifca.report.paper.results_page import results_page, sections, write_results_page
from ifca.runs.units.choice import chosen_names, chosen_seeds
from ifca.runs.units.execute import PACKAGE, commit_of, execute
from ifca.runs.units.lines import RUNS, append, key, read_lines
from ifca.runs.units.unit import Line

ROOT = Path(__file__).parent.parent
ROW = [
    *("setting", "algorithm", "metric", "mean", "std", "seeds", "values"),
    *("paper_mean", "paper_std", "seconds"),
]


def lines_of(name: str, **metrics: float) -> list[Line]:
    setting, algorithms = next(iter(experiment(name).full.algorithms.items()))
    common = {"seconds": 1.0, "device": "cpu", "versions": {"torch": "2"}, "commit": "abc"}
    return [
        {"setting": setting, "algorithm": algorithms[0], "seed": seed, **metrics, **common} for seed in (1, 0)
    ]


def test_summary_has_a_row_for_each_setting_algorithm_and_metric() -> None:
    lines = lines_of("rotated-mnist", test_accuracy=0.94, all_right=True)
    lines[1]["test_accuracy"] = 0.96
    found = summary(experiment("rotated-mnist"), lines, quick=False)
    accuracy, right = found["rows"]
    assert [*accuracy] == ROW
    assert (accuracy["mean"], accuracy["std"]) == pytest.approx((95.0, 1.0))
    assert accuracy["seeds"] == [0, 1]
    assert accuracy["values"] == pytest.approx([96, 94])
    assert (accuracy["paper_mean"], accuracy["paper_std"], accuracy["seconds"]) == (94.20, 0.03, 2.0)
    assert right["interval"][1] == 100
    assert {"device", "versions", "commit", "command"} <= found.keys()
    assert found["missing"] == 3 * 5 * 5 - 2
    assert "95.00 ± 1.00 [94.20 ± 0.03]" in markdown(found["rows"])
    right["seeds"] = [0]
    assert "(1 of 2 seeds)" in markdown(found["rows"])
    diverged = {**lines[0], "diverged": "training diverged", "seed": 2}
    found = summary(experiment("rotated-mnist"), [*lines, diverged], quick=False)
    assert (found["diverged"], len(found["rows"][0]["values"])) == (1, 2)


@pytest.mark.parametrize(
    ("name", "unit", "good", "shares"),
    [
        ("rotated-mnist", 0, {"test_accuracy": 0.9, "all_right": True}, {"ifca": 2}),
        ("rotated-mnist", 2, {"test_accuracy": 0.9}, {}),  # the global model has no clusters to find
        ("synthetic-a", 1, {"success": True, "distance": 0.1}, {"ifca": 2}),
        (
            "initialisation",
            0,
            {"starts": [{"train_loss": 1.0, "all_right": True, "cluster_accuracy": 1.0}] * 10},
            dict.fromkeys(["ifca-plain", "ifca-plain, best of 5 starts", "ifca-plain, best of 10 starts"], 2),
        ),
    ],
)
def test_a_diverged_unit_is_a_failure_in_the_share_of_successes(
    name: str, unit: int, good: dict[str, Any], shares: dict[str, int]
) -> None:
    """Two of three seeds succeed; where all diverge, none does."""
    units = [one for one in experiment(name).units() if one.seed == 0]
    common = {"seconds": 1.0, "device": "cpu", "versions": {"torch": "2"}, "commit": "abc"}
    line = {"setting": units[unit].setting, "algorithm": units[unit].algorithm, **common}
    lines = [{**line, "seed": 0, "diverged": "no"}, *[{**line, "seed": seed, **good} for seed in (1, 2)]]
    found = summary(experiment(name), lines, quick=False)
    rows = {row["algorithm"]: row for row in found["rows"] if "interval" in row}
    assert {algorithm: sum(row["values"]) / 100 for algorithm, row in rows.items()} == shares
    assert all(sorted(row["seeds"]) == [0, 1, 2] and row["interval"][1] < 98 for row in rows.values())
    assert all(len(row["values"]) == 2 for row in found["rows"] if "interval" not in row)
    assert ("failures" in table_of(found)) == bool(shares)
    (row,) = summary(experiment(name), lines[:1], quick=False)["rows"]
    assert (row["mean"], row["seeds"]) == (0.0, [0])


def test_every_experiment_is_whole() -> None:
    assert len(MODULES) == 13
    for name in MODULES:
        found = experiment(name)
        assert found.name == name
        units = found.units()
        assert len({unit.key for unit in units}) == len(units)
        assert not any("," in unit.setting or "," in unit.algorithm for unit in units)
        assert 0 < len(found.units(quick=True)) < len(units) + 1
        for scale in (found.full, found.quick):
            assert all(scale.fewer[setting] <= scale.seeds for setting in scale.fewer)
            assert scale.fewer.keys() <= scale.algorithms.keys()
        known = {(unit.setting, unit.algorithm) for unit in units}
        assert {(setting, algorithm) for setting, algorithm, _ in found.paper} <= known
        deviations = (ROOT / "docs" / "deviations.md").read_text()
        assert all(
            f"| {number} |" in deviations or f"**{number}." in deviations for number in found.deviations
        )


def test_settings_may_have_fewer_seeds() -> None:
    found = experiment("collapse")
    seeds: dict[str, set[int]] = {}
    for unit in found.units():
        seeds.setdefault(unit.setting, set()).add(unit.seed)
    assert (len(seeds["rotated-digits"]), len(seeds["femnist"])) == (100, 5)
    more = found.units(settings=("femnist",), seeds=range(7, 9))  # whoever asks for others gets them
    assert {unit.seed for unit in more} == {7, 8}


def test_choices_of_units() -> None:
    found = experiment("femnist")
    units = found.units(seeds=range(2, 4), algorithms=("ifca",), settings=("k=2", "k=3"))
    assert [unit.key for unit in units] == [(k, "ifca", s) for s in (2, 3) for k in ("k=2", "k=3")]
    assert chosen_seeds("2:4") == range(2, 4)
    assert chosen_names("a, b") == ("a", "b")
    for text in ("3", "4:2", "a:b", ":"):
        with pytest.raises(InvalidInput, match="first:end"):
            chosen_seeds(text)
    with pytest.raises(InvalidInput, match="unknown setting k=9"):
        found.units(settings=("k=9",))
    with pytest.raises(InvalidInput, match="unknown algorithm best"):
        found.units(algorithms=("best",))
    with pytest.raises(InvalidInput, match="femnist: oneshot is not run in k=4"):
        found.units(algorithms=("oneshot",), settings=("k=4",))


def test_finished_units_are_never_repeated(tmp_path: Path) -> None:
    units = experiment("theory-linear").units(quick=True, seeds=range(1), settings=("alpha=0.1 rho=1",))
    assert execute(units, tmp_path, run_unit_of) == 1
    before = (tmp_path / RUNS).read_bytes()
    assert execute(units, tmp_path, run_unit_of) == 0
    assert (tmp_path / RUNS).read_bytes() == before
    more = experiment("theory-linear").units(quick=True, seeds=range(3), settings=("alpha=0.1 rho=1",))
    told: list[tuple[int, int]] = []
    count = execute(more, tmp_path, run_unit_of, workers=2, on_line=lambda _line, n, of: told.append((n, of)))
    assert count == 2
    assert told == [(2, 3), (3, 3)]
    assert sorted(line["seed"] for line in read_lines(tmp_path, quick=True)) == [0, 1, 2]
    with pytest.raises(InvalidInput, match="line 1 is of a quick run"):
        read_lines(tmp_path, quick=False)
    later = experiment("theory-linear").units(quick=True, seeds=range(5), settings=("alpha=0.1 rho=1",))
    assert [execute(later, tmp_path, run_unit_of, workers=n, seconds=0) for n in (1, 2)] == [0, 0]
    with pytest.raises(InvalidInput, match="workers must be at least 1"):
        execute(units, tmp_path, run_unit_of, workers=0)


def test_lines_that_are_torn_or_altered(tmp_path: Path) -> None:
    file = tmp_path / RUNS
    append(tmp_path, line_of(0))
    with file.open("a") as content:
        content.write('{"setting": "a", "al')
    before = file.read_bytes()
    assert len(read_lines(tmp_path)) == 1
    assert file.read_bytes() == before  # looking changes nothing
    append(tmp_path, line_of(1))
    assert [line["seed"] for line in read_lines(tmp_path)] == [0, 1]
    file.write_text(file.read_text().rstrip("\n"))  # as some editors leave it
    assert [line["seed"] for line in read_lines(tmp_path)] == [0, 1]
    append(tmp_path, line_of(2))
    assert [line["seed"] for line in read_lines(tmp_path)] == [0, 1, 2]
    assert file.read_text().count("\n") == 3
    append(tmp_path, line_of(1))
    with pytest.raises(InvalidInput, match=r"line 4 is the unit of line 2; remove one of them"):
        read_lines(tmp_path)


def line_of(seed: int) -> Line:
    return {"setting": "a", "algorithm": "b", "seed": seed, "seconds": 1.0, "versions": {}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"nonsense\n", "line 1 is damaged .not valid JSON.+; remove it"),
        (b"{}\n", "line 1 is damaged .setting is missing.; remove it"),
        (b'{"setting": "a", "algorithm": "b", "seed": 0, "seconds": 1}\n', "versions is missing"),
    ],
)
def test_lines_that_are_none(text: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / RUNS).write_bytes(text)
    with pytest.raises(InvalidInput, match=reason):
        read_lines(tmp_path)


def test_two_processes_do_not_run_the_same_units(tmp_path: Path) -> None:
    units = experiment("theory-linear").units(quick=True, seeds=range(1), settings=("alpha=0.1 rho=1",))
    with working_in(tmp_path), pytest.raises(InvalidInput, match="another process"):
        execute(units, tmp_path, run_unit_of)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        execute(units, tmp_path / "file" / "folder", run_unit_of)  # known before anything is trained
    assert read_lines(tmp_path, quick=True) == []


def test_the_commit_is_that_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results do not make it dirty, code does; in another repository's folder there is none."""
    monkeypatch.delenv("IFCA_COMMIT", raising=False)
    package = tmp_path / "src" / "ifca"
    package.mkdir(parents=True)
    (package / "code.py").write_text("1\n")
    (tmp_path / "results.md").write_text("1\n")
    installed = tmp_path / ".venv" / "ifca"
    installed.mkdir(parents=True)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(tmp_path)]
    for arguments in (["init", "-q"], ["add", "src", "results.md"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *arguments], check=True)
    clean = commit_of(package)
    assert clean is not None
    assert len(clean) == 12
    (tmp_path / "results.md").write_text("2\n")
    assert commit_of(package) == clean
    (package / "code.py").write_text("2\n")
    assert commit_of(package) == f"{clean}-dirty"
    assert commit_of(installed) is None


def test_a_line_has_the_commit_and_the_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IFCA_COMMIT", raising=False)
    unit, *_ = experiment("theory-linear").units(quick=True, seeds=range(1), settings=("alpha=0.1 rho=1",))
    execute([unit], tmp_path, run_unit_of)
    (line,) = read_lines(tmp_path, quick=True)
    assert {"ifca", "python", "torch", "numpy"} == line["versions"].keys()
    head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True)
    if PACKAGE == ROOT / "src" / "ifca" and head.returncode == 0:
        assert line["commit"].removesuffix("-dirty") == head.stdout[:12]


def test_a_killed_experiment_goes_on_where_it_was(tmp_path: Path) -> None:
    """SIGKILL in the middle: what is finished stays, byte for byte; the rest is run, nothing twice."""
    command = [sys.executable, "-m", "ifca.paper", "theory-linear", str(tmp_path), "--quick"]
    command += ["--seeds", "0:1", "--device", "cpu"]
    running = subprocess.Popen(command, env=_one_thread(), stdout=subprocess.DEVNULL)
    file = tmp_path / "quick" / "theory-linear" / RUNS
    until = time.monotonic() + 60
    while (not file.exists() or file.read_text().count("\n") < 2) and time.monotonic() < until:
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    text = file.read_text()
    before = text[: text.rindex("\n") + 1]
    finished, units = before.count("\n"), experiment("theory-linear").units(quick=True, seeds=range(1))
    assert 2 <= finished < len(units)
    again = subprocess.run(command, env=_one_thread(), capture_output=True, text=True, check=True)
    assert again.stdout.count("\n") == len(units) - finished
    assert file.read_text().startswith(before)
    keys = [key(line) for line in read_lines(file.parent, quick=True)]
    assert sorted(keys) == sorted(unit.key for unit in units)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("whom", "code"),
    [
        ("worker", 2),
        pytest.param("command", 130, marks=pytest.mark.slow),
        pytest.param("command for good", -9, marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_is_killed_and_a_command_that_is_interrupted(
    tmp_path: Path, whom: str, code: int
) -> None:
    """Both end at once, with one sentence; nobody waits for the others, and no process stays behind."""
    command = [sys.executable, "-m", "ifca", "reproduce", "communication", "--out", str(tmp_path), "--quick"]
    command += ["--device", "cpu", "--workers", "2"]
    running = subprocess.Popen(command, env=_one_thread(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    try:
        assert running.stdout.readline().startswith(b"communication: 1 of ")
        workers = _children(running.pid, "spawn_main")
        assert len(workers) == 2
        if whom == "worker":
            os.kill(workers[0], signal.SIGKILL)
        else:
            running.send_signal(signal.SIGINT if whom == "command" else signal.SIGKILL)
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == code
    if whom != "command for good":
        assert len(said.decode().splitlines()) == 1
        assert "the same command goes on after the last finished unit" in said.decode()
    assert "Traceback" not in said.decode()
    until = time.monotonic() + 20
    while any(map(_lives, workers)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(_lives, workers))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _children(parent: int, what: str) -> list[int]:
    found = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    return [pid for pid in found if what in Path(f"/proc/{pid}/cmdline").read_text()]


def test_lines_are_read_in_the_order_of_the_units(tmp_path: Path) -> None:
    found, units = experiment("theory-linear"), experiment("theory-linear").units(quick=True, seeds=range(2))
    some = {"quick": True, "seconds": 1.0, "versions": {}}
    for unit in reversed(units):
        line = {"setting": unit.setting, "algorithm": unit.algorithm, "seed": unit.seed}
        append(tmp_path, {**line, **some})
    assert [key(line) for line in finished(found, tmp_path, quick=True)] == [unit.key for unit in units]
    append(tmp_path, {"setting": "foo", "algorithm": "ifca", "seed": 0, **some})
    with pytest.raises(InvalidInput, match=r"runs.jsonl: line \d+ \(foo, ifca\) is no unit of theory-linear"):
        finished(found, tmp_path, quick=True)


def test_seconds_without_end_are_refused(tmp_path: Path) -> None:
    """1e400 in a line is read as infinity, which no summary can hold."""
    found = experiment("theory-linear")
    unit = found.units(quick=True)[0]
    line = {
        "setting": unit.setting,
        "algorithm": unit.algorithm,
        "seed": unit.seed,
        "versions": {},
        "quick": True,
    }
    text = json.dumps({**line, "seconds": 1.0}).replace("1.0", "1e400")
    (tmp_path / "runs.jsonl").write_text(f"{text}\n")
    with pytest.raises(InvalidInput, match=r"runs\.jsonl: a line does not hold what theory-linear measures"):
        write_summary(found, tmp_path, quick=True)


def test_units_need_no_library_of_configs_and_reports() -> None:
    """As on a GPU machine that has little else: every module of the units is imported without the rest."""
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pydantic", "typer", "rich", "matplotlib", "safetensors", "flwr"):
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
import ifca.paper.__main__
from ifca.paper.experiments import MODULES, experiment
for name in MODULES:
    experiment(name).units()
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=_one_thread())


def _one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def test_missing_data_is_said_before_anything_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IFCA_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    with pytest.raises(
        InvalidInput, match=r"needs mnist, which is not in .*/none/mnist nor in .*; 'ifca data get mnist'"
    ):
        reproduce("rotated-mnist", tmp_path, Choice(quick=True))
    assert not (tmp_path / "quick").exists()


def test_the_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Table, figure as PNG and PDF, summary; a wrong name is one sentence."""
    options = ["--quick", "--out", str(tmp_path), "--seeds", "0:1"]
    options += ["--settings", "alpha=0.1 rho=1,n'=10,n'=20"]
    done = CliRunner().invoke(cli.app, ["reproduce", "theory-linear", *options], catch_exceptions=False)
    assert done.exit_code == 0
    assert "| n'=10 | plain IFCA |" in done.output
    assert "left)" in done.output
    folder = tmp_path / "quick" / "theory-linear"
    assert json.loads((folder / "summary.json").read_text())["quick"] is True
    assert (folder / "theory-linear.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "theory-linear.pdf").read_bytes().startswith(b"%PDF")
    assert (folder / "table.md").read_text().startswith("# Theorem 1")
    lines = (folder / RUNS).read_bytes()
    (folder / "summary.json").unlink()
    report = ["reproduce", "theory-linear", "--quick", "--no-run", "--out", str(tmp_path)]
    done = CliRunner().invoke(cli.app, report, catch_exceptions=False)
    assert "45 units of this experiment are not run yet" in done.output
    assert (folder / RUNS).read_bytes() == lines
    assert (folder / "summary.json").is_file()
    monkeypatch.setattr(sys, "argv", ["ifca", "reproduce", "nope"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: unknown experiment nope (known: synthetic-a, ")
    assert said.count("\n") == 1


def test_figures_of_rows(tmp_path: Path) -> None:
    """Every experiment has one; drawn from lines of its kind."""
    curve = {"accuracy_by_round": [[10, 0.5], [20, 0.6]], "cluster_accuracy_by_round": [0.5, 1.0]}
    more: dict[str, Any] = {"curve": [[100, 0.5], [200, 0.6]], "bytes_to_80": 200, "all_right": True}
    common = {"test_accuracy": 0.9, "test_accuracy_train_rule": 0.9, **curve, **more}
    for name in ("rotated-mnist", "rotated-cifar", "femnist", "cluster-accuracy", "communication"):
        lines = lines_of(name, **common)
        found = summary(experiment(name), lines, quick=False)
        assert [file.suffix for file in write_figure(tmp_path, found, lines)] == [".png", ".pdf"]
    trial = lines_of("synthetic-c")
    for line in trial:
        line |= {"distance": {"n=50 m=10": 0.05}, "threshold": {"n=50 m=10": 0.06}}
    assert write_figure(tmp_path, summary(experiment("synthetic-c"), trial, quick=False), trial)
    pair = lines_of("collapse", success=True, bytes=100, turns=10)
    assert write_figure(tmp_path, summary(experiment("collapse"), pair, quick=False), pair)
    assert write_figure(tmp_path, summary(experiment("femnist"), [], quick=False), []) == []


def test_the_page_says_what_is_not_run_yet(tmp_path: Path) -> None:
    page = results_page(tmp_path, "## opening\n\nHello.\n", {n: experiment(n) for n in MODULES})
    assert page.startswith("# Results\n\nHello.\n")
    assert page.count("**Not run yet.**") == len(MODULES)
    assert "| LEAF FEMNIST, 395-writer subset | k=2 | IFCA (default) | not run yet | 87.99 ± 0.35 |" in page
    assert "| rotated-cifar | m=200 n=500 | local (authors' rule, D10) | not run yet | 33.97 ± 1.19 |" in page
    assert sections("x\n## a\n\nb\n## c\n") == {"a": "b\n"}


def test_a_page_is_not_written_of_nothing(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "results-notes.md").write_text("")
    (docs / "results.md").write_text("old")
    with pytest.raises(InvalidInput, match="no results of any experiment"):
        write_results_page(tmp_path / "typo", docs, {n: experiment(n) for n in MODULES})
    assert (docs / "results.md").read_text() == "old"
    (tmp_path / "femnist").mkdir()
    (tmp_path / "femnist" / "summary.json").write_text('{"rows": [')
    with pytest.raises(InvalidInput, match=r"not valid JSON .*; 'ifca reproduce femnist --no-run'"):
        write_results_page(tmp_path, docs, {n: experiment(n) for n in MODULES})
    with pytest.raises(InvalidInput, match="nothing is run there yet"):
        reproduce("femnist", tmp_path / "nowhere", Choice(run=False))
    assert not (tmp_path / "nowhere").exists()


def test_units_of_an_older_code_are_said_to_be_so() -> None:
    """Lines that were written without a commit are reported with the others, and counted."""
    lines = lines_of("rotated-mnist", test_accuracy=0.9)
    found = summary(experiment("rotated-mnist"), lines, quick=False)
    assert (found["older"], found["commit"]) == (0, "abc")
    assert "older code" not in table_of(found)
    del lines[0]["commit"]
    lines[0]["versions"] = {}
    found = summary(experiment("rotated-mnist"), lines, quick=False)
    assert (found["older"], found["commit"], found["versions"]) == (1, "abc", {"torch": "2"})
    assert table_of(found).endswith("older code, whose commit and versions are not known: 1.\n")


def test_settings_that_were_spread_stand_together() -> None:
    trial, ours = lines_of("synthetic-c")
    names = [point.name for point in panels(quick=False)["synthetic-c"].points]
    trial |= {"distance": dict.fromkeys(names, 0.05), "threshold": dict.fromkeys(names, 0.06)}
    ours |= {"setting": names[8], "algorithm": "ifca", "success": True, "distance": 0.05}
    rows = summary(experiment("synthetic-c"), [ours, trial], quick=False)["rows"]
    assert [(row["setting"], row["algorithm"]) for row in rows[7:11]] == [
        (names[7], "ifca-plain"),
        (names[8], "ifca-plain"),
        (names[8], "ifca"),
        (names[9], "ifca-plain"),
    ]


def test_the_committed_page_is_that_of_the_committed_results() -> None:
    notes = (ROOT / "docs" / "results-notes.md").read_text()
    assert set(sections(notes)) <= {"opening", "table 1", "table 2", *MODULES}
    page = results_page(ROOT / "results", notes, {n: experiment(n) for n in MODULES})
    assert page == (ROOT / "docs" / "results.md").read_text(), "run 'ifca reproduce docs'"


@pytest.mark.parametrize("name", list(MODULES))
def test_committed_summaries_are_those_of_their_lines(name: str) -> None:
    folder = ROOT / "results" / name
    found = json.loads((folder / "summary.json").read_text())
    again = json.loads(
        json.dumps(summary(experiment(name), finished(experiment(name), folder, quick=False), quick=False))
    )
    assert [{k: row[k] for k in ROW if k not in ("mean", "std", "values")} for row in again["rows"]] == [
        {k: row[k] for k in ROW if k not in ("mean", "std", "values")} for row in found["rows"]
    ]
    for mine, theirs in zip(again["rows"], found["rows"], strict=True):
        assert mine["mean"] == pytest.approx(theirs["mean"], rel=1e-6, abs=1e-9)
        assert mine["std"] == (theirs["std"] and pytest.approx(theirs["std"], rel=1e-6, abs=1e-9))
    assert found["command"] == f"ifca reproduce {name}"
    assert (folder / f"{name}.png").is_file()
    assert (folder / f"{name}.pdf").is_file()
    assert (folder / "table.md").is_file()


def test_means_of_the_largest_numbers_are_numbers() -> None:
    """A damaged line of results can hold them; 1e308 twice and its opposite once."""
    mean, std = mean_std([1e308, 1e308, -1e308])
    assert mean == pytest.approx(1e308 / 3)
    assert std == pytest.approx(1e308 * (8 / 9) ** 0.5)
    assert mean_std([1.0, 3.0]) == (2.0, 1.0)
    assert mean_std([1.0, math.inf])[0] == math.inf
