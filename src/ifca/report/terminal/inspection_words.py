"""The report of 'ifca data inspect' in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def inspection_lines(report: dict[str, Any]) -> Iterator[str]:
    """Understood, problems, remarks, verdict."""
    yield f"{report['path']}: read as {report['kind']}"
    if report["clients"]:
        yield from _understood(report)
    for title, kept, count in (
        ("problems", report["problems"], report["problem_count"]),
        ("remarks", report["remarks"], report["remark_count"]),
    ):
        if count:
            yield f"{title}:"
            yield from (f"  {sentence}" for sentence in kept)
            if count > len(kept):
                yield f"  ... and {count - len(kept)} more, {count} in all"
    yield "this can be trained on" if report["trainable"] else "this cannot be trained on yet"


def _understood(report: dict[str, Any]) -> Iterator[str]:
    sizes = report["samples_per_client"]
    spread = f"{sizes['smallest']} to {sizes['largest']} each, median {sizes['median']:g}"
    yield f"  clients   {report['clients']} with {report['samples']} training samples ({spread})"
    test = report["test_samples"]
    yield "  test      " + ("none" if test is None else f"{test} samples of {report['test_clients']} clients")
    names = report["features"]
    shown = "" if names is None else ": " + ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    shape = " x ".join(map(str, report["input_shape"]))
    yield f"  features  {shape}, {report['input_type']}{shown}"
    if report["task"] == "regression":
        target = report["target"]
        spread = f"{target['smallest']:.4g} to {target['largest']:.4g}, mean {target['mean']:.4g}"
        yield f"  target    {report['targets']} number(s) a sample (regression), {spread}"
    else:
        counts, owners = report["class_samples"], report["class_clients"]
        yield f"  classes   {report['classes']} (classification); samples and clients of each:"
        for c, (samples, clients) in list(enumerate(zip(counts, owners, strict=True)))[:20]:
            share = 100 * samples / max(1, sum(counts))
            yield f"            {c}: {samples} samples ({share:.1f} %), {clients} clients"
        if len(counts) > 20:
            yield f"            ... and {len(counts) - 20} more classes"
    if report["true_clusters"] is not None:
        groups = ", ".join(f"{c}: {n}" for c, n in report["true_clusters"].items())
        yield f"  clusters  known, clients of each: {groups}"
