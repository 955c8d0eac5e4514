"""What went over the wire, what happened on the way, and what the run was made with."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from ifca.report.page.axes import legend
from ifca.report.page.charts import Line, line_chart
from ifca.report.page.parts import Section, figure, folded, numbers, paragraph, table
from ifca.report.palette import COLOURS
from ifca.report.read_run import RunFolder
from ifca.report.words import clusters_asked, count, listed, number, size_of, title_of

LISTED = 40  # events at most, half from the beginning and half from the end
FAULTS = {
    "raised": "the client's own code failed",
    "crashed": "the client's process died",
    "lost": "the connection to the client was lost during the round",
    "absent": "the client was not connected when the round began",
    "no-reply": "the client did not answer in time",
    "busy": "the client was still working on an earlier round and was not asked",
    "late": "the answer came after the round had ended and was not used",
    "wrong-shape": "the update did not fit the model and was not used",
    "malformed": "the answer could not be read and was not used",
    "not-finite": "the update held values that are no numbers and was not used",
    "cluster-out-of-range": "the answer named a cluster that does not exist and was not used",
    "stale": "the answer belonged to another round and was not used",
    "too-large": "the update changed the model far more than the others' did and was not used",
    "contradicts-losses": "the losses contradicted the cluster that was claimed; the update was not used",
    "wrong-count": "the client had another number of samples than when it joined; the update was not used",
    "left-out": "the client was rejected three times in a row and is not asked any more",
    "refused": "a newcomer was turned away",
    "came-back": "a known client connected again",
    "repeated": "too few clients answered, so the round was repeated",
}


def traffic(run: RunFolder) -> Section:
    """Bytes by round, down and up."""
    s = run.summary
    down, up = ([record[f"bytes_{way}"] for record in run.rounds] for way in ("down", "up"))
    total = f"{size_of(s['bytes_down'])} went from the server to clients and {size_of(s['bytes_up'])} back"
    if not sum(down) + sum(up):
        return Section(
            "traffic", "What was sent", paragraph("Nothing was sent: the models never left the clients.")
        )
    x = list(range(1, len(run.rounds) + 1))
    lines = [Line("down, to clients", down, COLOURS[0]), Line("up, to the server", up, COLOURS[1])]
    sentence = f"Bytes in each round. In all {total}"
    if len(s.get("restarts") or []) > 1:
        sentence += f", over {len(s['restarts'])} restarts (drawn is the one that was kept)"
    sentence += f": {size_of((s['bytes_down'] + s['bytes_up']) / max(1, s['clients']))} per client."
    if s.get("bytes_evaluation"):
        sentence += f" Questions for scores took another {size_of(s['bytes_evaluation'])}."
    top = max(range(len(down)), key=lambda i: down[i])
    if down[-1] < 0.8 * down[top]:
        sentence += f" Most went down in round {top + 1} ({size_of(down[top])}), "
        sentence += f"in the last round {size_of(down[-1])}."
    chart = line_chart(
        x,
        lines,
        show=size_of,
        label=f"Line chart of bytes by round. {sentence}",
        y_title="bytes in a round",
        zero=True,
    )
    keys = legend([(one.colour, one.name) for one in lines])
    return Section(
        "traffic",
        "What was sent",
        figure(keys + chart, sentence, "", numbers(x, lines, size_of, "Bytes by round")),
        f"{total}.",
    )


def events(run: RunFolder) -> Section:
    """Clusters merged and kept; clients that failed."""
    told: list[dict[str, Any]] = run.summary.get("events") or []
    body = Markup("")
    if run.summary.get("undecided"):
        body += paragraph(f"{run.summary['undecided']}.")
    items = [Markup("<li><b>Round {}</b> {}</li>").format(e["round"] + 1, in_words(e)) for e in told]
    if len(items) > LISTED:
        left_out = len(items) - LISTED
        gap = Markup("<li>… {} more …</li>").format(left_out)
        items = [*items[: LISTED // 2], gap, *items[-LISTED // 2 :]]
    if items:
        body += Markup('<ol class="events">{}</ol>').format(Markup("").join(items))
    if run.faults:
        body += _faults(run)
    elif run.summary["engine"] == "flower":
        body += paragraph("Every client gave a usable answer whenever it was asked.")
    return Section("events", "What happened on the way", body, _events_sentence(run, told))


def in_words(event: dict[str, Any]) -> str:
    """An event for someone who does not know the algorithm."""
    kind = event["event"]
    if "p" in event or kind in ("free", "parted"):
        return _verdict_in_words(event)
    j = event["cluster"]
    if kind == "merged":
        alike = f"their clients' first updates have a cosine of {event['cosine']:.2f}"
        return f"Clusters {j} and {event['other']} became one: {alike}."
    if kind == "split":
        groups, into = listed(event["clients"]), listed(event["into"])
        if "cosine" in event or event["clear"]:  # clear: of older versions, as all that follows
            return (
                f"Clients of cluster {j} pulled their model in clearly different directions (groups of "
                f"{groups} clients), so it was divided into clusters {into}."
            )
        trial = f"Cluster {j} was divided on trial into clusters {into} (groups of {groups} clients)"
        return f"{trial}, to see whether that helps."
    if kind == "dead":
        return f"Cluster {j} was given up: no client had chosen it for a while."
    other = event["other"]
    if event["loss"] is None:
        proof = "nobody could judge it"
    else:
        who = count(event["clients"], "client")
        losses = f"{number(event['loss'])} with it and {number(event['loss_under_other'])} with model {other}"
        proof = f"{who} had a mean loss of {losses}"
    return {
        "kept": f"Cluster {j} was worth keeping: {proof}.",
        "undone": f"The division that made cluster {j} was taken back, as it helped too little: {proof}.",
        "twins": f"Cluster {j} was merged into cluster {other}, which serves its clients as well: {proof}.",
    }[kind]


def _verdict_in_words(event: dict[str, Any]) -> str:
    """What the referee said, or that clients were let go."""
    if event["event"] == "free":
        share = f"{event['moved']:.0%} of the clients chose" if event["moved"] else "no client chose"
        return f"From now on clients choose their clusters themselves: {share} another one than they had."
    if event["event"] == "parted":
        groups = f"{event['clusters']} groups by the directions in which clients pull their models"
        return (
            f"Places for models were free, so clients were parted into {groups}, to see whether that helps."
        )
    a, b, samples = event["cluster"], event["other"], event["samples"]
    loses = f"{number(abs(event['loses']))} {'higher' if event['loses'] > 0 else 'lower'} a sample"
    proof = f"on {samples} samples set aside, the loss of one model for both is {loses}"
    chance = f"p = {event['p']:.2g}, level {event['alpha']:g}"
    if event["event"] == "kept":
        return f"Clusters {a} and {b}, the closest two, are both needed: {proof} ({chance})."
    why = "too little to prove that two are needed" if event["loses"] > 0 else "so nothing speaks for two"
    return f"Clusters {a} and {b} became one: {proof}, {why} ({chance})."


def settings(run: RunFolder) -> Section:
    """Config and versions."""
    s = run.summary
    made = [[name, value] for name, value in (s.get("versions") or {}).items()]
    made += [["engine", s["engine"]], ["device", s.get("device") or "–"], ["seed", s["seed"]]]
    body = table(["made with", "version or value"], made, caption="Versions", words=(0, 1))
    rows = [[key, value] for key, value in flat(s.get("config") or {}).items()]
    body += folded("Every setting", table(["setting", "value"], rows, caption="Config", words=(0, 1)))
    body += paragraph(
        "The same settings are in config.toml of the run's folder; 'ifca run config.toml' trains it again."
    )
    made_by = f"Engine {s['engine']}, seed {s['seed']}; every setting and version."
    return Section("settings", "How it was made", body, made_by)


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings by dotted name; those that are not set are left out."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        elif value not in (None, [], ""):
            found[prefix + key] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return found


def _events_sentence(run: RunFolder, told: list[dict[str, Any]]) -> str:
    s = run.summary
    if s["events"] is None or not s["method"]["at_most_k"]:
        k = clusters_asked(s)
        if s["method"]["at_most_k"]:
            return f"{title_of(s)} keeps no record of how it came to its clusters."
        if s["method"]["chooses"] and s["live_clusters"] < k:
            lost = f"{k - s['live_clusters']} of the {k} clusters ended without clients"
            return f"{lost}; {title_of(s)} does not mend that."
        return "This algorithm neither divides nor merges clusters."
    if not told:
        return "No cluster was merged or divided."
    kinds = [event["event"] for event in told]
    words = (
        ("split", "divided"),
        ("parted", "parted again"),
        ("merged", "merged"),
        ("kept", "confirmed"),
        ("undone", "taken back"),
        ("twins", "merged"),
        ("dead", "given up"),
    )
    counts = [f"{word} {_times(kinds.count(kind))}" for kind, word in words if kind in kinds]
    if "merged" in kinds and any("cosine" in event for event in told):
        text = "Clusters whose clients pull their models in one direction become one. "
    elif "free" in kinds or "merged" in kinds or any("p" in event for event in told):
        text = (
            "Clients are put into groups before training; groups that one model serves as well become one. "
        )
    else:
        text = (
            "Training begins with one model for all; a cluster is divided where its clients need different "
        )
        older = any("clear" in event for event in told)
        text += "models, and a division that does not help is taken back. " if older else "models. "
    return f"{text}In this run clusters were {listed(counts)}." if counts else text


def _times(n: int) -> str:
    return "once" if n == 1 else "twice" if n == 2 else f"{n} times"


def _faults(run: RunFolder) -> Markup:
    kinds: dict[str, list[dict[str, Any]]] = {}
    for fault in run.faults:
        kinds.setdefault(fault["kind"], []).append(fault)
    rows = []
    for kind, found in sorted(kinds.items(), key=lambda pair: -len(pair[1])):
        who = sorted({fault["client"] for fault in found})
        names = ", ".join(who[:5]) + (f" and {len(who) - 5} more" if len(who) > 5 else "")
        rows.append([FAULTS.get(kind, kind), len(found), names, found[-1]["detail"]])
    return paragraph(
        f"{count(len(run.faults), 'time')} a client stood out; rounds went on with the others."
    ) + table(
        ["what happened", "times", "clients", "the last one in detail"],
        rows,
        caption="Clients that failed",
        words=(0, 2, 3),
    )
