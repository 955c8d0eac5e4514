"""What is said of new data, sentence by sentence, with the numbers that it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def client_alarm(row: dict[str, Any]) -> str:
    """A client's loss has left the band of its cluster. row: as of checked."""
    own = row["cluster"] if row["was"] is None else row["was"]
    first = (
        f"{row['client']} loses {row['loss_own']:.3g} a sample with model {own}, usual is at most "
        f"{row['limit']:.3g} (p = {row['p']:.1g}, {row['samples']} samples)"
    )
    if not row["tried"] or not row["best_above_limit"]:
        above = row["best_above_limit"]
        fits = "fits it better" if above else "fits it"
        doubt = f", above the usual {row['best_limit']:.3g}, but not beyond chance" if above else ""
        return f"{first}; model {row['cluster']} {fits}: {row['loss']:.3g}{doubt}"
    best = (
        ""
        if row["cluster"] == own
        else f"; the best of the others, model {row['cluster']}: {row['loss']:.3g}"
    )
    return f"{first}{best}; no model fits it"


def cluster_alarm(row: dict[str, Any]) -> str:
    """The clients of a cluster lose more than they did."""
    return (
        f"cluster {row['cluster']}: its {row['clients']} clients lose {row['more']:.3g} a sample more with "
        f"its model than in the run, where it was {row['then']:.3g} (t = {_t(row['t'])}, p = {row['p']:.1g})"
    )


def moved(row: dict[str, Any]) -> str:
    """From which model to which, with how much loss less."""
    errors = row["margin_in_errors"]
    sure = "" if errors is None else f", {errors:.1f} standard errors"
    doubt = " (not sure)" if row["samples"] == 1 or (errors is not None and errors < 2) else ""
    return (
        f"{row['client']} moved from model {row['was']} to model {row['cluster']}: it loses "
        f"{row['saved']:.3g} a sample less ({row['loss_own']:.3g} -> {row['loss']:.3g}{sure}){doubt}"
    )


def joined(row: dict[str, Any]) -> str:
    """A client that the run did not know, and that a model fits."""
    usual = "" if row["best_limit"] is None else f", usual is at most {row['best_limit']:.3g}"
    return f"{row['client']} is new: model {row['cluster']} fits it best, loss {row['loss']:.3g}{usual}"


def without_labels(row: dict[str, Any]) -> str:
    """Which model a client without labels gets, which one is most confident on its samples, and how sure."""
    name, model, most = row["client"], row["cluster"], row.get("most_confident", row["cluster"])
    errors = row["margin_in_errors"]
    ahead = "" if errors is None else f", {errors:.1f} standard errors ahead"
    sure = f" ({row['most']:.2f} on average{ahead})" if "most" in row else ahead
    first = f"{name} has no labels: model {most} is the most confident{sure}"
    if row["by"] == "run":
        return f"{first}; it keeps model {model} of the run"
    if row["by"] == "only":
        return f"{name} has no labels: it gets model {model}"
    return first if row["by"] == "confidence" else f"{first}, which is a guess"


def how_sure(rows: list[dict[str, Any]]) -> Iterator[str]:
    """What is said once of all clients without labels: how far confidence can be trusted, what it lacks."""
    tried, right, p = (rows[0][name] for name in ("tried", "right", "p"))
    own = "clients with labels would get their own model"
    if rows[0].get("tried_by") == "run":
        own = "clients would get the model that they had in the run"
    if rows[0]["by"] == "only":
        yield "the run has one model, so every client gets it"
    elif not tried:
        yield "how far confidence can be trusted is not known: no client with a known model has labels"
    elif rows[0]["by"] == "confidence":
        yield f"by confidence alone {right} of {tried} {own} (by chance p = {p:.1g}), so it chooses here"
    else:
        yield (
            f"by confidence alone {right} of {tried} {own}, which chance does as well (p = {p:.1g}): it does "
            "not tell these models apart"
        )
    yield "nothing else can be said of clients without labels: labels alone tell whether a model still fits"


def report_lines(found: dict[str, Any]) -> Iterator[str]:
    """What was found of the new data, before anything is trained."""
    rows = found["clients"]
    by = {
        name: [one for one in rows if one["state"] == name]
        for name in ("stayed", "moved", "joined", "misfit")
    }
    counts = [
        f"{len(by['stayed'])} stayed",
        f"{len(by['moved'])} moved",
        f"{len(by['joined'])} new",
        f"{len(by['misfit'])} fit no model",
        f"{len(found['unlabelled'])} without labels",
        f"{len(found['gone'])} not in the new data",
    ]
    yield f"clients: {', '.join(counts)}"
    yield from map(moved, by["moved"])
    yield from map(joined, by["joined"])
    yield from map(without_labels, found["unlabelled"])
    if found["unlabelled"]:
        yield from how_sure(found["unlabelled"])
    if found["gone"]:
        more = ", ..." if len(found["gone"]) > 10 else ""
        yield f"not in the new data: {', '.join(found['gone'][:10])}{more}"
    if not rows:
        yield "no client has labels, so no loss is known and no alarm can be raised: label some rows of each"
        return
    for sentence in found["alarms"]:
        yield f"alarm: {sentence}"
    if not found["alarms"]:
        with_labels = " with labels" if found["unlabelled"] else ""
        yield f"no alarm: every client{with_labels} loses what is usual in its cluster"
    if not found["held_out"]:
        yield (
            "the run kept no samples apart, so what is usual was measured on samples that it trained on: new "
            "samples exceed that more often, and alarms may be false (data.test_share keeps some apart)"
        )
    elif found["level"]:
        yield (
            f"alarms are raised at level {found['level']:.0%}: where nothing has changed, about one check in "
            "a hundred raises any"
        )


def new_models(summary: dict[str, Any], clusters: dict[str, int]) -> Iterator[str]:
    """Which models are new and whose, which nobody has. clusters: of each client now, by its name."""
    earlier = len(summary["continued"]["clusters"])
    for j in range(summary["models"]):
        mine = [name for name, cluster in clusters.items() if cluster == j]
        if j >= earlier and mine:
            yield f"model {j} is new: {', '.join(mine)} need it (the evidence is with the events)"
        elif not mine:
            yield f"model {j} is kept although nobody has it now: its concept may return"


def compared_lines(found: dict[str, Any]) -> Iterator[str]:
    """What continuing brought, on samples that were kept apart. found: the part "continued" of a summary."""
    compared = found.get("compared")
    if compared is None:
        yield "the new data have no test samples, so before and after cannot be compared"
        return
    ways = compared["ways"]
    worse = [one for one in compared["clients"] if one["after"]["loss"] > one["earlier_models"]["loss"]]
    named = {
        "as_it_was": "each client with the model that it had",
        "earlier_models": "with the best of the earlier models",
        "after": "with the models as they are now",
    }
    yield f"on {compared['samples']} test samples of the new data:"
    for name, words in named.items():
        accuracy = ways[name]["accuracy"]
        right = "" if accuracy is None else f", accuracy {100 * accuracy:.2f} %"
        yield f"  {words}: loss {ways[name]['loss']:.4g}{right}"
    if worse:
        shown = ", ".join(one["client"] for one in worse[:5]) + (", ..." if len(worse) > 5 else "")
        share = f"{len(worse)} of {len(compared['clients'])}"
        yield f"  {share} clients lose more than with the best earlier model: {shown}"


def _t(value: float | None) -> str:
    return "inf" if value is None else f"{value:.1f}"
