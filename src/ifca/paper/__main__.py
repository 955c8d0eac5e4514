"""Units only, for machines that have a GPU and little else: torch, numpy, scipy, scikit-learn are enough.

python -m ifca.paper NAME OUT [--quick] [--device cuda] [--workers 3] [--seeds 0:5]
                                 [--algorithms ifca,global] [--settings k=2,k=3]

Lines are appended to OUT/NAME/runs.jsonl, of quick runs OUT/quick/NAME/runs.jsonl; 'ifca reproduce NAME
--no-run' makes tables and figures of them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ifca.paper.experiments import MODULES, experiment, run_unit_of
from ifca.paper.reproduce import folder_of
from ifca.runs.units.choice import chosen_names, chosen_seeds
from ifca.runs.units.execute import execute, pool_of
from ifca.runs.units.time_left import Estimate, main_of_units
from ifca.runs.units.unit import Line


def main() -> None:
    """Parse, run what is missing, say so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name", help="all, or one of: " + ", ".join(MODULES))
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, help="default: one per GPU")
    parser.add_argument("--seeds", default=None)
    parser.add_argument("--algorithms", default=None)
    parser.add_argument("--settings", default=None)
    given = parser.parse_args()
    with main_of_units(), pool_of(given.workers, given.device) as pool:
        for name in MODULES if given.name == "all" else [given.name]:
            units = experiment(name).units(
                quick=given.quick,
                seeds=chosen_seeds(given.seeds),
                algorithms=chosen_names(given.algorithms),
                settings=chosen_names(given.settings),
            )
            estimate = Estimate()

            def say(line: Line, done: int, of: int, name: str = name, estimate: Estimate = estimate) -> None:
                sys.stdout.write(f"{name}: {estimate.describe(line, done, of)}\n")
                sys.stdout.flush()

            folder = folder_of(given.out, name, given.quick)
            execute(units, folder, run_unit_of, device=given.device, on_line=say, pool=pool)


if __name__ == "__main__":
    main()
