"""What choices gain, split in time: people's choices before a day rank the queries that are asked from it on.

Evidence of the measured days never ranks anything: it only tells how much of the traffic each query is. Human judgments
and what has no day are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float64
from kinrank.data.hashes import keys_of
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.kin.letters import FAMILY, nearest_similarity
from kinrank.measure import PairedComparison, compare_paired
from kinrank.memory.columns import texts_of
from kinrank.memory.evidence import Evidence, evidence_before
from kinrank.rankers.base import Ranker
from kinrank.rankers.kin._chosen import WithChoices
from kinrank.study._answer import Claim, TrafficAnswer, TrafficPart

Recurrence = Literal["recurring", "similar", "new"]
_EARLY = 0.8  # share of the days whose choices rank the others
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, eq=False)
class SplitInTime:
    """Evidence, and the first day of the queries that are measured."""

    evidence: Evidence
    """Looks and choices by day."""
    day: int
    """The first measured day, in days since 1970."""

    @classmethod
    def of(cls, evidence: Evidence) -> SplitInTime:
        """Split before the last fifth of the days, which is measured.

        Examples
        --------
        >>> evidence = Evidence.from_cells(["a", "a"], ["d", "d"], [1, 1], [1, 0], day=[20000, 20009])
        >>> SplitInTime.of(evidence).date
        '2024-10-12'
        """
        if evidence.days is None:
            raise DataError("the evidence has no days, so it cannot be split in time: use a click log with times")
        start, end = evidence.days
        day = start + int(_EARLY * (end - start + 1))
        if day == start:
            raise DataError(f"the evidence has one day, {_iso(start)}, so it cannot be split in time: add other days")
        return cls(evidence, day)

    @property
    def date(self) -> str:
        """The first measured day, such as 2026-10-12."""
        return _iso(self.day)

    @cached_property
    def _looks_in_all(self) -> float:
        state = self.evidence.get_state()
        return float(state["looks"][state["day"] >= self.day].sum(dtype=np.float64))

    def traffic(self, queries: QuerySet) -> Float64:
        """Return the looks at the candidates of each query in the measured days."""
        assert self.evidence.days is not None
        looks = self.evidence.totals(queries, days=(self.day, self.evidence.days[1])).looks
        return _of_queries(queries, looks)

    def fit(self, ranker: Ranker, train: QuerySet | None, test: QuerySet) -> WithChoices:
        """Add the choices before the measured days to a fitted ranker; grades of test queries are not used."""
        both = _together(train, test)
        early = evidence_before(self.evidence, both, self.day)
        if both.doc_id is None or early.totals(both).choices.sum() <= 0:
            raise DataError(
                f"nobody chose a candidate of these queries before {self.date}: check that the texts of queries and "
                "the ids of documents are those of the click log"
            )
        return WithChoices(ranker, early).fit(both)

    def recurrence(self, train: QuerySet | None, test: QuerySet) -> NDArray[np.str_]:
        """Return whether each query was asked before, or one with nearly its text, or neither."""
        both = _together(train, test)
        early = evidence_before(self.evidence, both, self.day)
        asked = _of_queries(both, early.totals(both).looks) > 0
        own = _of_queries(test, early.totals(test).looks) > 0
        texts = texts_of(both)
        known = [text for text, before in zip(texts, asked, strict=True) if before]
        similar = nearest_similarity(texts[len(both) - len(test) :], known) > FAMILY if known else own
        return np.where(own, "recurring", np.where(similar, "similar", "new"))

    def answer(
        self,
        queries: QuerySet,
        recurrence: NDArray[np.str_],
        names: tuple[str, str],
        values: tuple[Float64, Float64],
        groups: ArrayLike | None,
        min_gain: float,
        engine: Float64 | None = None,
    ) -> TrafficAnswer:
        """Return what choices gain by traffic: in all, and for recurring, similar and new queries.

        `names` and `values` are those of choices and of the wrapped ranker, `engine` has the values of the engine.
        """
        traffic = np.where(np.isnan(values[0]), 0.0, self.traffic(queries))
        total = traffic.sum()
        if total <= 0:
            raise DataError(f"nobody looked at a candidate of the test queries from {self.date} on")
        group = None if groups is None else np.asarray(groups)

        def part(name: str, member: NDArray[np.bool_], other: Float64 = values[1]) -> TrafficPart:
            asked = member & (traffic > 0)
            share = float(traffic[asked].sum() / total)
            if not asked.any():
                return TrafficPart(name, 0, share, np.nan, np.nan, None)
            weight = traffic[asked] / traffic[asked].sum()
            after, before = (float(weight @ each[asked]) for each in (values[0], other))
            members = np.flatnonzero(asked) if group is None else group[asked]
            paired = None
            if len(np.unique(members)) > 1:
                paired = weighted_comparison(
                    values[0][asked] - other[asked], weight, None if group is None else members
                )
            return TrafficPart(name, int(asked.sum()), share, after, before, paired)

        whole = np.ones(len(queries), dtype=np.bool_)
        everything = part("all", whole)
        if everything.paired is None:
            raise DataError(f"only one test query, or one group, was asked from {self.date} on: too few to compare")
        return TrafficAnswer(
            since=self.date,
            covered=float(total / self._looks_in_all),
            parts=(*(part(name, recurrence == name) for name in get_args(Recurrence)), everything),
            claim=Claim(*names, everything.paired, min_gain=min_gain),
            today=None if engine is None else part("all", whole, engine),
        )


def weighted_comparison(difference: Float64, weight: Float64, groups: ArrayLike | None) -> PairedComparison:
    """Test a weighted mean: that of values whose variance is that of the ratio of two sums."""
    mean = float(weight @ difference)
    values = mean + len(weight) * weight * (difference - mean)
    tested = compare_paired(values, np.zeros(len(values)), groups=groups)
    signs = np.sign(difference)
    return replace(tested, wins=int((signs > 0).sum()), ties=int((signs == 0).sum()), losses=int((signs < 0).sum()))


def _together(train: QuerySet | None, test: QuerySet) -> QuerySet:
    """Return all queries with texts, those of the test without grades."""
    if keys_of(test) is None or test.doc_id is None:
        raise DataError("the test queries have no texts or no document ids, so their choices cannot be found")
    blind = test.replace(y=np.zeros(test.n_rows, dtype=np.float32), sample_weight=None)
    if train is None:
        return blind
    others = train[~np.isin(train.qid, test.qid)].replace(sample_weight=None)
    shared = [name for name in test.query_columns if name in train.query_columns]
    parts = [
        part.replace(query_columns={name: part.query_columns[name] for name in shared}) for part in (others, blind)
    ]
    return QuerySet.concat(parts)


def _of_queries(queries: QuerySet, values: Float64) -> Float64:
    return np.bincount(queries.query_of_row, weights=values, minlength=len(queries)).astype(np.float64)


def _iso(day: int) -> str:
    return (_EPOCH + timedelta(days=day)).isoformat()
