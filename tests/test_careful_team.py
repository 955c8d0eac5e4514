"""What a careful team reads of attacks, privacy and new data: sentences that must be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from ifca.core.errors import InvalidInput
from ifca.report.ending_words import ending_sentences
from ifca.report.page.build import write_report
from ifca.report.read_run import read_run
from ifca.report.terminal.attack_table import attack_sentence, attack_table
from ifca.report.terminal.run_tables import clusters_table, comparison_table
from ifca.runs.attack_config import AttackConfig
from ifca.runs.chosen_job import chosen_job
from ifca.runs.config import Config, read_config
from ifca.runs.drift_words import client_alarm
from ifca.runs.rehearse import rehearse
from ifca.runs.run import run
from ifca.use.card import write_card
from ifca.use.continue_run import continue_run
from ifca.use.export import export_model
from tests.test_drift import FIRST, SMALL, write_clients
from tests.test_page import text_of


def shown(table: Table) -> str:
    console = Console(width=140, record=True)
    console.print(table)
    return console.export_text()


@pytest.fixture
def towns(tmp_path: Path) -> Path:
    return write_clients(tmp_path / "towns", FIRST, 0)


def tables_of(towns: Path, *more: str) -> Config:
    return chosen_job(towns, {"label": ["y"]}, None, [*SMALL, "rounds=1", *more])


def card_of(folder: Path) -> str:
    model = folder.with_suffix(".safetensors")
    return write_card(folder, 0, model, export_model(folder, 0, model)).read_text()


def test_a_rule_or_an_attack_that_does_not_go_is_one_sentence_that_blames_the_right_word(towns: Path) -> None:
    private = tables_of(towns, "algorithm=ifca-plain", "dp_epsilon=3")
    with pytest.raises(
        InvalidInput, match=r"^an attack and privacy .dp_epsilon, dp_noise. are not rehearsed together"
    ):
        rehearse(private, AttackConfig("scale"), ["mean", "clip"])
    with pytest.raises(InvalidInput, match=r"^attack\.name must be one of .*, got 'signflip'"):
        rehearse(tables_of(towns), AttackConfig("signflip"))
    with pytest.raises(InvalidInput, match=r"^--rules: aggregation must be one of .*, got 'clipp'"):
        rehearse(tables_of(towns), AttackConfig("scale"), ["clipp"])


def test_a_rehearsal_without_true_clusters_does_not_speak_of_them(towns: Path) -> None:
    found = rehearse(tables_of(towns), AttackConfig("scale"), ["mean"])
    assert "elsewhere" not in shown(attack_table(found)) + attack_sentence(found)
    known: dict[str, Any] = found | {"rows": [row | {"lost_elsewhere": 0.5} for row in found["rows"]]}
    assert "lost elsewhere" in shown(attack_table(known))
    assert attack_sentence(known).endswith("elsewhere: in all true clusters but the one that lost most")
    one = attack_sentence(known | {"cluster": 90})
    assert "clients, each in true cluster 90;" in one
    assert one.endswith("elsewhere: in the other true clusters")


def test_a_refusal_names_the_key_as_it_is_set(towns: Path, tmp_path: Path) -> None:
    settings = ["algorithm=ifca-plain", "dp_epsilon=3"]
    with pytest.raises(InvalidInput, match=r"set data\.standardise = false and data\.standardise_target = f"):
        run(tables_of(towns, *settings), tmp_path / "private")
    with pytest.raises(InvalidInput, match=r'and set baselines = \[\] or \["global"\]'):
        run(tables_of(towns, "algorithm=local", "dp_epsilon=3"), tmp_path / "local")
    with pytest.raises(InvalidInput, match="dp_clip alone makes nothing private"):
        tables_of(towns, "dp_clip=0.3")


def test_without_test_data_there_are_no_columns_of_tests(towns: Path, tmp_path: Path) -> None:
    data = f"data={{name='folder', path='{towns}', label='y'}}"
    config = read_config(None, [*SMALL, "rounds=1", data])
    with pytest.raises(InvalidInput, match=r"no test data, .*data\.test_share = 0\.2 keeps a fifth"):
        rehearse(config, AttackConfig("scale"))
    run(config, tmp_path / "run")
    found = read_run(tmp_path / "run")
    text = shown(comparison_table(found)) + shown(clusters_table(found))
    assert "test" not in text
    assert "R2" not in text
    assert "train" in text


def test_who_is_left_out_after_the_same_round_shares_a_sentence() -> None:
    left = {"a": 3, "b": 3, "c": 4} | {f"d{i}": 5 for i in range(7)}
    rejected = {"replies": 30, "clients": dict.fromkeys(left, 3), "why": {"too-large": 30}, "left_out": left}
    assert ending_sentences({"rejected": rejected})[1:] == [
        "Clients a and b were rejected three times in a row and left out after round 3.",
        "Client c was rejected three times in a row and left out after round 4.",
        "Clients d0, d1, d2, d3, d4 and 2 more (summary.json names all) were rejected three times in a row "
        "and left out after round 5.",
        "Where they are honest, the step was too long for them: try a smaller step_size.",
    ]


def test_what_the_referee_keeps_when_the_rounds_are_over_has_its_evidence(
    towns: Path, tmp_path: Path
) -> None:
    summary = run(tables_of(towns), tmp_path / "run")
    assert summary["live_clusters"] == 2
    assert [event["event"] for event in summary["events"]] == ["merged", "kept"]
    assert summary["events"][-1]["p"] < 0.01


def test_the_card_of_a_rehearsal_or_a_continuation_says_so_and_names_no_client_and_no_place(
    towns: Path, tmp_path: Path
) -> None:
    run(tables_of(towns, 'attack={name="scale", clients=["c3"]}'), tmp_path / "attacked")
    card = card_of(tmp_path / "attacked")
    assert "rehearsal in which 1 of 8 clients attacked (scale)" in card
    assert '"c3"' not in card
    run(tables_of(towns), tmp_path / "run")
    continue_run(tmp_path / "run", towns, tmp_path / "next")
    write_report([tmp_path / "next"])
    card = card_of(tmp_path / "next")
    assert 'continues = "run"' in card
    assert str(tmp_path) not in card
    page = text_of((tmp_path / "next" / "report.html").read_text())
    assert "What changed since the run before" in page
    assert "Of the clients: 8 stayed, 0 moved" in page
    assert "with the models as they are now: loss" in page


def test_a_better_model_that_is_above_its_band_is_not_said_to_fit() -> None:
    row = {"client": "a", "was": 0, "cluster": 1, "loss_own": 4.0, "loss": 0.9, "limit": 0.6, "p": 1e-7}
    row |= {"samples": 40, "tried": False, "best_limit": 0.7, "best_above_limit": True}
    assert client_alarm(row).endswith(
        "; model 1 fits it better: 0.9, above the usual 0.7, but not beyond chance"
    )
    assert client_alarm(row | {"best_above_limit": False}).endswith("; model 1 fits it: 0.9")
