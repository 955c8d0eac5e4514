"""The model card of an exported model: what it is, whose data made it, how good it is, how to use it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ifca.core.errors import InvalidInput
from ifca.data.files import write_atomically
from ifca.data.preparation import Preparation
from ifca.runs.config import Config, write_config
from ifca.runs.privacy_words import privacy_sentences
from ifca.runs.summary_file import SUMMARY, read_summary
from ifca.use.export import SCALINGS, columns_file
from ifca.use.opened_run import open_trained
from ifca.use.trained import Trained


def write_card(
    directory: Path, cluster: int, model: Path, checked: dict[str, Any], trained: Trained | bool = False
) -> Path:
    """Markdown beside the model file. trained: the run where it is open, else trust as of open_trained."""
    summary = card_summary(directory, cluster)
    trained = open_trained(directory, trained) if isinstance(trained, bool) else trained
    parts = [
        f"# Model of cluster {cluster}: {model.name}",
        _about(directory, trained, summary, cluster, model, checked),
        "## Data\n\n" + _data(summary, cluster),
        "## Quality\n\n" + _quality(trained, summary, cluster),
        "## Input and output\n\n" + _interface(trained, model),
        "## Loading\n\n" + _loading(trained, model),
        "## Limits\n\n" + _limits(summary),
        "## Privacy\n\n" + _privacy(summary),
        f"## Config of the run\n\n```toml\n{_config(trained.config)}\n```",
    ]
    card = model.with_name(f"{model.name}.card.md")
    write_atomically(card, ("\n\n".join(parts) + "\n").encode())
    return card


def card_summary(directory: Path, cluster: int) -> dict[str, Any]:
    """The summary that a card is made of; refused where it says nothing of the cluster."""
    if not (directory / SUMMARY).is_file():
        raise InvalidInput(f"{directory}: has no {SUMMARY}; 'ifca resume {directory}' makes it")
    summary = read_summary(directory)
    there = len(summary["clusters"] or ())
    if summary["clusters"] is not None and not 0 <= cluster < there:
        told = ", ".join(map(str, range(there)))
        raise InvalidInput(f"{directory}: has no cluster {cluster} (it has {told})")
    return summary


def _about(
    directory: Path,
    trained: Trained,
    summary: dict[str, Any],
    cluster: int,
    model: Path,
    checked: dict[str, Any],
) -> str:
    count = sum(value[0].numel() for value in trained.theta.values())
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    how = f"{summary['algorithm']}, {summary['rounds']} rounds"
    lines = [
        f"| exported | {now} |",
        f"| from the run | `{directory.resolve().name}` ({how}) |",
        f"| cluster | {cluster}, one of {summary['live_clusters']} with clients |",
        f"| model | `{_name(trained)}`, {count:,} parameters |",
        f"| file | `{model.name}`, SHA-256 `{digest}` |",
        f"| checked | read back by {checked['reader']}; outputs of {checked['samples']} random samples agree "
        f"{agreement(checked['error'])} |",
        f"| versions | Python {summary['versions']['python']}, torch {summary['versions']['torch']} |",
    ]
    return "| | |\n|---|---|\n" + "\n".join(lines)


def agreement(error: float) -> str:
    """How far two computations agree, in words."""
    return "exactly" if error == 0 else f"to {error:.1g}"


def _data(summary: dict[str, Any], cluster: int) -> str:
    """How much data made the model, not whose: a card travels further than a run's folder."""
    mine = summary["clusters"][cluster]
    count = f"{mine['clients']} of the federation's {summary['clients']} clients"
    return f"Trained on {mine['train_samples']:,} samples of {count}. Their names stay in the run's folder."


def _quality(trained: Trained, summary: dict[str, Any], cluster: int) -> str:
    mine = summary["clusters"][cluster]
    rows = [("training loss (mean over clients)", mine["train_loss"], summary["train_loss"])]
    if summary["test_clients"]:
        rows.append(("test loss", mine.get("test_loss"), summary["test_loss"]))
        if trained.classes is not None:
            rows.append(("test accuracy", mine.get("test_accuracy"), summary["test_accuracy"]))
    lines = [f"| {name} | {_number(own)} | {_number(every)} |" for name, own, every in rows]
    rule = "\n\nTest clients are counted where the model with the lowest loss on their test data is this one."
    head = "| | this cluster | whole run |\n|---|---|---|\n"
    return head + "\n".join(lines) + (rule if summary["test_clients"] else "\n\nThere were no test data.")


def _interface(trained: Trained, model: Path) -> str:
    shape = ["n", *map(str, trained.input_shape)]
    kind = "uint8" if trained.header.get("pixels") else "float32"
    lines = [f"- Input: `[{', '.join(shape)}]`, {kind}."]
    if trained.header.get("features"):
        lines.append(
            "- Features, in this order: " + ", ".join(f"`{n}`" for n in trained.header["features"]) + "."
        )
    inside = model.suffix == ".onnx"
    where = "done inside the file" if inside else "to be done before the model"
    if trained.header.get("pixels"):
        lines.append(f"- Pixels are bytes (uint8), divided by 255: {where}.")
    if trained.scaling is not None:
        stored = (
            ""
            if inside
            else {".pt": ", stored as `mean` and `scale`"}.get(
                model.suffix, ", stored as `input.mean` and `input.scale`"
            )
        )
        lines.append(f"- Features are standardised, (x - mean) / scale: {where}{stored}.")
    if not trained.header.get("pixels") and trained.scaling is None:
        lines.append("- Features are used as they are.")
    if trained.classes is None:
        lines.append(f"- Output: `[n, {trained.header['outputs']}]`, the predicted target(s).")
        if trained.target_scaling is not None:
            lines.append(
                f"- Targets were standardised: output * target scale + target mean, {_after(inside)}."
            )
    else:
        both = "; second output: the probabilities" if inside else "; softmax gives probabilities"
        lines.append(f"- Output: `[n, {trained.classes}]`, a score per class{both}.")
    if trained.class_names is not None:
        lines.append("- Classes, in this order: " + ", ".join(f"`{n}`" for n in trained.class_names) + ".")
    known = trained.preparation
    return "\n".join(lines) + ("" if known is None or known.plain else "\n\n" + _columns(known, model))


def _columns(preparation: Preparation, model: Path) -> str:
    """How the columns of a table become the features."""
    rows = []
    for column in preparation.columns:
        features = ", ".join(f"`{name}`" for name in column.features)
        rows.append(f"| `{column.name}` | {column.kind} | {column.done()} | {features} |")
    head = "| column of the table | taken as | what is done | features |\n|---|---|---|---|\n"
    told = (
        f"Columns become features as follows (for programs: `{columns_file(model).name}`); `ifca predict` "
        "does it by itself. Missing cells are empty, or say NA, N/A, NaN, null, None, - or ?.\n\n"
    )
    return told + head + "\n".join(rows)


def _loading(trained: Trained, model: Path) -> str:
    if model.suffix == ".onnx":
        code = f'session = onnxruntime.InferenceSession("{model.name}")\nsession.run(None, {{"x": x}})'
        return f"```python\nimport onnxruntime\n\n{code}\n```"
    if trained.built_in is not None:
        call = trained.built_in.source
        made = f"from ifca.models import {call.partition('(')[0]}\n\nmodule = {call}"
    else:
        module, _, function = trained.config.model.name.partition(":")
        made = f"from {module} import {function}\n\nmodule = {function}()"
    if model.suffix == ".pt":
        load = f'content = torch.load("{model.name}", weights_only=True)\n'
        load += 'module.load_state_dict(content["state_dict"])'
        load += _given(trained, *(f'content["{name}"]' for name in SCALINGS))
        return f"```python\nimport torch\n{made}\n{load}\n```"
    load = f'state = load_file("{model.name}")\n'
    names = list(SCALINGS)[: 2 if trained.target_scaling is None else 4]
    for name in names[0 if trained.scaling is not None else 2 :]:
        load += f'{name} = state.pop("{SCALINGS[name]}")\n'
    load += "module.load_state_dict(state)" + _given(trained, *SCALINGS)
    return f"```python\nfrom safetensors.torch import load_file\n{made}\n{load}\n```"


def _name(trained: Trained) -> str:
    """The model; of auto the one that it came to."""
    name = trained.config.model.name
    return trained.built_in.name if name == "auto" and trained.built_in is not None else name


def _after(inside: bool) -> str:
    return "done inside the file" if inside else "to be done after the model"


def _given(trained: Trained, mean: str, scale: str, target_mean: str, target_scale: str) -> str:
    """The lines that give the module features x as they were measured, and answer in the targets' units."""
    x = "x.float() / 255" if trained.header.get("pixels") else "x.float()"
    if trained.scaling is not None:
        x = f"(({x.replace('float', 'double')} - {mean}) / {scale}).float()"
    back = "" if trained.target_scaling is None else f"\noutput = output * {target_scale} + {target_mean}"
    return f"\noutput = module({x})  # x: a tensor of features as they are given{back}"


def _limits(summary: dict[str, Any]) -> str:
    attack = summary.get("attack")
    rehearsed = attack and (
        f"**Not for use**: trained in a rehearsal in which {len(attack['attackers'])} of "
        f"{summary['clients']} clients attacked ({attack['name']}); test results are over the others.\n\n"
    )
    return (rehearsed or "") + (
        "This model serves the clients of its cluster. Whether a new client belongs to it is a question for "
        f"`ifca assign`, which compares its loss under all {summary['live_clusters']} models; with the wrong "
        "cluster's model predictions can be much worse than the numbers above."
    )


def _privacy(summary: dict[str, Any]) -> str:
    """What the model may tell about single clients."""
    if (found := summary.get("privacy")) is None:
        return "Without differential privacy: the model may tell something about single clients' data."
    also = "This card's numbers of clients and samples, losses and accuracies are not covered either."
    return "\n\n".join([*privacy_sentences(found), also])


def _config(config: Config) -> str:
    """The config without clients' ids and without the places where this machine keeps its files."""
    begun = config.warm_start and Path(config.warm_start).name
    earlier = config.continues and Path(config.continues).name
    attack = config.attack and replace(config.attack, clients=())
    config = replace(config, code=None, warm_start=begun, continues=earlier, attack=attack)
    data: Any = config.data
    for name in ("path", "folder"):
        if place := getattr(data, name, None):
            data = replace(data, **{name: Path(place).name})
    return write_config(replace(config, data=data)).strip()


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
