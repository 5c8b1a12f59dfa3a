"""Figures of all parts that were measured, as one JSON file, and what is made of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kinrank
from reproduction import PAPERS
from reproduction.catalog import PARTS, parts_of
from reproduction.claims import Verdict, expectations, judge
from reproduction.run import Measured

FILE = "reproduction.json"


@dataclass(frozen=True)
class Results:
    """What was measured.

    Attributes
    ----------
    figures : mapping of str to dict
        Figures by part.
    seconds : mapping of str to dict
        ``cpu`` and ``wall`` seconds by part, summed over pieces.
    version : str
        Of kinrank.
    """

    figures: Mapping[str, dict[str, Any]]
    seconds: Mapping[str, dict[str, float]]
    version: str = kinrank.__version__

    @classmethod
    def of(cls, measured: Mapping[str, Measured]) -> Results:
        """From a run."""
        return cls(
            {name: each.figures for name, each in measured.items()},
            {name: each.seconds for name, each in measured.items()},
        )

    @classmethod
    def read(cls, file: Path) -> Results:
        """From the file that `write` wrote."""
        read = json.loads(file.read_text(encoding="utf-8"))
        return cls(read["figures"], read["seconds"], read["kinrank"])

    def write(self, file: Path) -> None:
        """As JSON, a line for each part."""
        parts = {"figures": self.figures, "seconds": self.seconds}
        lines = [
            f'"{name}": {{\n'
            + ",\n".join(f"{json.dumps(part)}: {_compact(each)}" for part, each in by_part.items())
            + "\n}"
            for name, by_part in parts.items()
        ]
        text = "{\n" + ",\n".join([f'"kinrank": {json.dumps(self.version)}', *lines]) + "\n}\n"
        file.write_text(text, encoding="utf-8")

    @property
    def papers(self) -> list[str]:
        """The papers of which every part was measured."""
        return [paper for paper in PAPERS if all(part.name in self.figures for part in parts_of(paper))]

    def verdicts(self) -> dict[str, list[Verdict]]:
        """Every claim of every paper, judged."""
        return {paper: judge(expectations(paper).claims, self.figures) for paper in self.papers}

    def cpu_minutes(self, paper: str) -> float:
        """CPU time of the parts of a paper."""
        return sum(self.seconds[part.name]["cpu"] for part in PARTS.values() if part.paper == paper) / 60


def _compact(figures: Mapping[str, Any]) -> str:
    return json.dumps(figures, ensure_ascii=False, separators=(",", ":"))
