"""Trials of a tuning study, kept in a folder: one line each, written when done, so that a study can be resumed.

::

    study.json      what is tuned on what, to refuse a resumption on other data
    trials.jsonl    one trial a line
    settings.json   the best so far, for ``kinrank train --settings``
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kinrank.data.jobs import claim_folder
from kinrank.data.queryset import QuerySet
from kinrank.data.textfile import write_json
from kinrank.rankers.base import Ranker, from_settings


@dataclass(frozen=True)
class Trial:
    """What was tried and what it reached.

    Attributes
    ----------
    key, family, stage : str
        Of the candidate; see `kinrank.study.space.Candidate`.
    record : dict
        The ranker with the best k and prior, as `kinrank.rankers.persistence.settings_of` gives it.
    quality : float
        The mean of the measure on queries that the ranker was not fitted on.
    seconds : float
        What trying took.
    params : dict or None
        What a sampler drew.
    """

    key: str
    family: str
    stage: str
    record: dict[str, Any]
    quality: float
    seconds: float
    params: dict[str, Any] | None = None

    def make(self) -> Ranker:
        """The ranker, not fitted."""
        return from_settings(self.record)


class TrialLog:
    """The folder of a study.

    Parameters
    ----------
    folder
        Made where it is not there; one of another study is refused.
    protocol
        What must be the same for trials to compare: data, measure, folds.
    """

    def __init__(self, folder: str | Path, protocol: dict[str, Any]) -> None:
        self.folder = Path(folder)
        claim_folder(folder, "study.json", protocol, "tuning study")
        self.trials = self._read()
        if self.best is not None:  # the study may have been killed between a trial and its settings
            write_json(self.best.record, self._settings, indent=2)

    @property
    def best(self) -> Trial | None:
        """The trial of the highest quality; the earlier of equals."""
        return max(self.trials, key=lambda trial: trial.quality, default=None)

    def add(self, trial: Trial) -> None:
        """Keep a trial, and its settings where it is the best."""
        with self._file.open("a") as stream:
            stream.write(json.dumps(asdict(trial)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        self.trials.append(trial)
        if self.best is trial:
            write_json(trial.record, self._settings, indent=2)

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
        whole = raw[: raw.rfind(b"\n") + 1]  # a line that was being written when the study was killed is no trial
        if len(whole) < len(raw):
            self._file.write_bytes(whole)
        return [Trial(**json.loads(line)) for line in whole.splitlines()]


def fingerprint(queries: QuerySet) -> str:
    """A number that other queries, features, grades or query columns do not have."""
    own = {"qid": queries.qid.astype(np.str_), "offsets": queries.offsets, "grades": queries.grades, "X": queries.X}
    columns = {f"column {name}": queries.query_columns[name] for name in sorted(queries.query_columns)}
    digest = hashlib.sha256(repr(queries.feature_names).encode())
    for name, array in (own | columns).items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
