"""The figures of all experiments as one JSON file, and the verdicts that follow from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kinrank
from reproduction import PAPERS
from reproduction.catalog import EXPERIMENTS, experiments_of
from reproduction.claims import Verdict, expectations, judge
from reproduction.run import Measurement

FILE = "reproduction.json"
STORED = Path(__file__).parents[1] / "docs" / FILE
"""The figures of the last run, which the pages show."""


@dataclass(frozen=True)
class Results:
    """The figures of a run.

    Attributes
    ----------
    figures : mapping of str to dict
        Figures by experiment.
    seconds : mapping of str to dict
        ``cpu`` and ``wall`` seconds by experiment, summed over tasks.
    version : str
        The version of kinrank.
    run : mapping of str to float
        ``minutes`` and ``processes`` of the run, and whether it ``resumed`` another one (1) or measured all (0).
    """

    figures: Mapping[str, dict[str, Any]]
    seconds: Mapping[str, dict[str, float]]
    version: str = kinrank.__version__
    run: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, measured: Mapping[str, Measurement], run: Mapping[str, float]) -> Results:
        """Collect the measurements of a run."""
        return cls(
            {name: each.figures for name, each in measured.items()},
            {name: each.seconds for name, each in measured.items()},
            run=run,
        )

    @classmethod
    def read(cls, file: Path) -> Results:
        """Read a file written by `write`."""
        read = json.loads(file.read_text(encoding="utf-8"))
        return cls(read["figures"], read["seconds"], read["kinrank"], read["run"])

    def write(self, file: Path) -> None:
        """Write JSON with one line per experiment."""
        tables = {"figures": self.figures, "seconds": self.seconds}
        lines = [
            f'"{name}": {{\n'
            + ",\n".join(f"{json.dumps(experiment)}: {_compact(each)}" for experiment, each in table.items())
            + "\n}"
            for name, table in tables.items()
        ]
        text = (
            "{\n"
            + ",\n".join([f'"kinrank": {json.dumps(self.version)}', f'"run": {_compact(self.run)}', *lines])
            + "\n}\n"
        )
        file.write_text(text, encoding="utf-8")

    @property
    def papers(self) -> list[str]:
        """The papers whose experiments were all measured."""
        return [paper for paper in PAPERS if all(each.name in self.figures for each in experiments_of(paper))]

    def verdicts(self) -> dict[str, list[Verdict]]:
        """Judge every claim whose experiment was measured, by paper."""
        claims = {
            paper: [each for each in expectations(paper).claims if each.experiment in self.figures] for paper in PAPERS
        }
        return {paper: judge(some, self.figures) for paper, some in claims.items() if some}

    def cpu_minutes(self, paper: str) -> float:
        """Return the CPU time of the experiments of a paper."""
        return sum(self.seconds[each.name]["cpu"] for each in EXPERIMENTS.values() if each.paper == paper) / 60


def _compact(figures: Mapping[str, Any]) -> str:
    return json.dumps(figures, ensure_ascii=False, separators=(",", ":"))
