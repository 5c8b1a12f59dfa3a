"""Trials of a tuning study in a folder, so that an interrupted study can be resumed.

::

    study.json      data, measure and folds; another study cannot use the folder
    trials.jsonl    one trial per line, written when it ends
    values/N.npy    the measure of every query in trial N
    settings.json   the ranker of the best trial so far
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.jobs import claim_folder
from kinrank.data.textfile import write_json
from kinrank.rankers.base import Ranker
from kinrank.rankers.persistence import from_settings


@dataclass(frozen=True)
class Trial:
    """A tried ranker and its quality."""

    key: str
    family: str
    stage: str
    """See `kinrank.study.space.Proposal`."""
    record: dict[str, Any]
    """Settings of the ranker with the best k and prior, from `kinrank.rankers.persistence.settings_of`."""
    quality: float
    """Mean of the measure on queries that the ranker was not fitted on."""
    seconds: float
    """Duration of the trial."""
    params: dict[str, Any] | None = None
    """Sampled parameters, if it was sampled."""

    def make(self) -> Ranker:
        """Return the unfitted ranker."""
        ranker: Ranker = from_settings(self.record)
        return ranker


class TrialLog:
    """Folder of a tuning study.

    Parameters
    ----------
    folder
        Path of the folder; created if missing. A folder of another study raises.
    protocol
        What must be equal for trials to be comparable: data, measure, folds.
    """

    def __init__(self, folder: str | Path, protocol: dict[str, Any]) -> None:
        self.folder = Path(folder)
        claim_folder(folder, "study.json", protocol, "tuning study")
        self.trials = self._read()
        if self.best is not None:  # the process may have been killed before writing the settings
            write_json(self.best.record, self._settings, indent=2)

    @property
    def best(self) -> Trial | None:
        """The first trial with the highest quality."""
        return max(self.trials, key=lambda trial: trial.quality, default=None)

    def values(self, trial: Trial) -> Float64:
        """Return the measure of every query in a trial."""
        values: Float64 = np.load(self._values(self.trials.index(trial)))
        return values

    def add(self, trial: Trial, values: Float64) -> None:
        """Append a trial with the measure of every query, and write its settings if it is the best."""
        file = self._values(len(self.trials))
        file.parent.mkdir(exist_ok=True)
        np.save(file, values)
        with self._file.open("a") as stream:
            stream.write(json.dumps(asdict(trial)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        self.trials.append(trial)
        if self.best is trial:
            write_json(trial.record, self._settings, indent=2)

    def _values(self, number: int) -> Path:
        return self.folder / "values" / f"{number}.npy"

    @property
    def _settings(self) -> Path:
        return self.folder / "settings.json"

    @property
    def _file(self) -> Path:
        return self.folder / "trials.jsonl"

    def _read(self) -> list[Trial]:
        if not self._file.exists():
            return []
        raw = self._file.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]  # drop a partly written last line
        if len(whole) < len(raw):
            self._file.write_bytes(whole)
        return [Trial(**json.loads(line)) for line in whole.splitlines()]
