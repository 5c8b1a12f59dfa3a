"""What a fitted `ChoiceRanker` has learned since: judgments, and what people chose, which count at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float64, State
from kinrank.data.hashes import IdHashes, hash_texts, hashes_of, keys_of
from kinrank.data.queryset import QuerySet
from kinrank.memory.evidence import Evidence, Totals, joined_days


class LiveJudgments:
    """Judged queries by id, as evidence.

    Parameters
    ----------
    qid
        The ids of the queries.
    owner
        The id of the query of each judgment.
    query, document
        Hashes of the query and of the document of each judgment.
    looks, choices
        What each judgment counts as.
    """

    def __init__(
        self,
        qid: NDArray[Any],
        owner: NDArray[Any],
        query: IdHashes,
        document: IdHashes,
        looks: Float64,
        choices: Float64,
    ) -> None:
        self.qid = qid
        self._owner = owner
        self._cells = query, document, looks, choices
        self.evidence = Evidence.from_hashes(*self._cells)

    @classmethod
    def none(cls, qid: NDArray[Any]) -> LiveJudgments:
        """Return no judgments, for ids of the type of these."""
        hashes, numbers = np.empty(0, dtype=np.uint64), np.empty(0)
        return cls(qid[:0], qid[:0], hashes, hashes, numbers, numbers)

    def added(self, queries: QuerySet, seen: Totals) -> LiveJudgments:
        """Return these judgments and those of further queries, as looks and choices.

        Without texts and document ids they say nothing.
        """
        keys = keys_of(queries)
        if keys is None or queries.doc_id is None:
            return LiveJudgments(np.concatenate([self.qid, queries.qid]), self._owner, *self._cells)
        rows = np.flatnonzero(seen.looks)
        owner = queries.query_of_row[rows]
        before = self._cells
        return LiveJudgments(
            np.concatenate([self.qid, queries.qid]),
            np.concatenate([self._owner, queries.qid[owner]]),
            np.concatenate([before[0], keys[owner]]),
            np.concatenate([before[1], hash_texts(queries.doc_id[rows])]),
            np.concatenate([before[2], seen.looks[rows]]),
            np.concatenate([before[3], seen.choices[rows]]),
        )

    def without(self, qid: ArrayLike) -> LiveJudgments:
        """Return these judgments without those of some queries."""
        kept, rows = (~np.isin(ids, np.asarray(qid)) for ids in (self.qid, self._owner))
        query, document, looks, choices = self._cells
        return LiveJudgments(self.qid[kept], self._owner[rows], query[rows], document[rows], looks[rows], choices[rows])

    def get_state(self) -> State:
        """Return the arguments of the constructor by name."""
        names = ("query", "document", "looks", "choices")
        return {"qid": self.qid, "owner": self._owner, **dict(zip(names, self._cells, strict=True))}


def as_evidence(queries: QuerySet, looks: float, best: float) -> Totals:
    """Return judgments as looks and choices of the candidates; see `Evidence.of_judgments`."""
    share = np.clip(queries.grades.astype(np.float64) / best, 0.0, 1.0)
    counted = np.where(queries.judged, looks, 0.0)
    return Totals(counted, np.where(queries.judged, looks * share, 0.0))


class EvidencePart(NamedTuple):
    """Evidence, and which of it counts how much; the arguments of `Evidence.totals`."""

    evidence: Evidence
    half_life: float | None = None
    days: tuple[int, int] | None = None
    until: int | None = None

    @property
    def counted(self) -> dict[str, Any]:
        """The arguments by name."""
        return {"half_life": self.half_life, "days": self.days, "until": self.until}


def evidence_parts(
    folder: Evidence | None, recent: Evidence | None, judgments: LiveJudgments, half_life: float | None
) -> list[EvidencePart]:
    """Return all evidence, each look and choice in one part.

    Parameters
    ----------
    folder, recent
        What people chose, and what they chose since. Of `recent` only the days after those of `folder` count, so that
        nothing counts twice.
    judgments
        Judgments, which do not age.
    half_life
        Days after which choices count half.
    """
    parts = []
    dated = None if folder is None else folder.days
    since = None if recent is None else recent.days
    if folder is not None:
        both = joined_days(dated, since)
        parts.append(EvidencePart(folder, half_life, until=None if both is None else both[1]))
    if recent is not None and since is not None and (dated is None or dated[1] < since[1]):
        days = (since[0] if dated is None else max(since[0], dated[1] + 1), since[1])
        parts.append(EvidencePart(recent, half_life, days))
    return [*parts, EvidencePart(judgments.evidence)] if len(judgments.qid) else parts


def total_evidence(queries: QuerySet, parts: Sequence[EvidencePart]) -> Totals:
    """Return the looks and choices of candidates."""
    hashes = hashes_of(queries) if parts else None
    if hashes is None:
        return Totals.zeros(queries.n_rows)
    return Totals.sum([part.evidence.totals(queries, **part.counted, hashes=hashes) for part in parts])
