"""Ready-made jobs: the TOML files of this package. Nothing heavy is imported to list them."""

from __future__ import annotations

from pathlib import Path

PRESETS = Path(__file__).parent / "conf"
DEFAULT = "rotated-digits"  # the job of 'ifca run' without anything else


def presets() -> dict[str, str]:
    """Name -> a line about it, the first of its file; the default job comes first."""
    files = sorted(PRESETS.glob("*.toml"), key=lambda file: (file.stem != DEFAULT, file.stem))
    return {file.stem: file.read_text("utf-8").splitlines()[0].removeprefix("# ") for file in files}
