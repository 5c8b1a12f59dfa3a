"""Learn from evidence how a ranker's scores and people's choices are combined."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kinrank.arrays import Float64, Int64, State
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError
from kinrank.memory.evidence import Evidence, Totals
from kinrank.rankers.base import Ranker
from kinrank.rankers.choices.calibration import Calibration
from kinrank.rankers.choices.posterior import LaterClicks, Posterior, choose_posterior, surely_better
from kinrank.rankers.local.kin_evidence import KinEvidence
from kinrank.store import nest, unnest

_LATE = 0.8  # share of the days after which clicks are held out
_MANY_QUERIES = 2_000  # from which one held-out fold calibrates as well as all of them
_DISCOUNTS = (0.03, 0.1, 0.3, 1.0)
_WIDTHS = (0.3, 0.5, 0.7, 1.0)


def opened(evidence: str | os.PathLike[str] | Evidence | None) -> Evidence | None:
    """Return evidence, opened if it is given by its folder."""
    return evidence if evidence is None or isinstance(evidence, Evidence) else Evidence.open(evidence)


@dataclass(frozen=True)
class Combination:
    """How scores and choices are combined."""

    calibration: Calibration
    """From scores to probabilities."""
    posterior: Posterior
    """How much both count."""
    kin: KinEvidence | None = None
    """The evidence of similar queries; None if it does not help, or was not tried."""

    def rates(
        self,
        queries: QuerySet,
        scores: Float64,
        own: Totals,
        similar: Totals | None,
    ) -> Float64:
        """Return the expected rates of choices of queries with evidence, and the given scores of the others."""
        looks = own.looks if similar is None else own.looks + similar.looks
        if not np.count_nonzero(looks):  # faster than any
            return scores
        mean = self.posterior.mean(self.calibration.predict(scores, queries.offsets), own, similar)
        if len(queries) == 1:
            return mean
        known = np.logical_or.reduceat(looks != 0, queries.offsets[:-1])
        return np.where(np.repeat(known, queries.sizes), mean, scores)

    def draw(
        self, queries: QuerySet, scores: Float64, own: Totals, similar: Totals | None, rng: np.random.Generator
    ) -> tuple[Float64, Float64]:
        """Return the expected rates of choices of all queries, and rates that are drawn from what they may be."""
        p = self.calibration.predict(scores, queries.offsets)
        return self.posterior.mean(p, own, similar), self.posterior.draw(p, own, similar, rng)

    def get_state(self) -> State:
        """Return the calibration and the settings."""
        return nest(calibration=self.calibration.get_state()) | {"posterior": self.posterior.to_array()}

    @classmethod
    def from_state(cls, state: State, kin: KinEvidence | None) -> Combination:
        """Restore what `get_state` returned."""
        calibration = Calibration().set_state(unnest(state, "calibration"))
        return cls(calibration, Posterior.from_array(state["posterior"]), kin)

    def remarks(self, *, similar: bool, fits: bool = True) -> list[str]:
        """Return what was chosen, in sentences; `similar` says whether similar queries were to be tried."""
        found = self.posterior
        ages = "does not age" if found.half_life is None else f"halves in {found.half_life:g} days"
        remarks = [f"a prediction counts as {found.strength:g} looks; evidence {ages}"]
        if found.discount:
            remarks.append(f"a look for a similar query counts as {found.discount:g} looks, or less")
        elif similar and not fits:
            remarks.append("similar queries do not count: they share the bias of clicks that no model of ranks fits")
        elif similar:
            remarks.append("what people chose for similar queries does not help on this log: discount 0")
        return remarks


def check_settings(n_folds: int, judgment_looks: float) -> None:
    """Raise unless these settings of a `ChoiceRanker` can be used."""
    if not (isinstance(n_folds, int) and n_folds > 1):
        raise ParameterError(f"n_folds must be a whole number from 2, got {n_folds!r}")
    if not judgment_looks > 0:
        raise ParameterError(f"judgment_looks must be above 0, got {judgment_looks}")


def check_wrapped(given: Any, wrapped: Any, *, prefit: bool) -> None:
    """Raise unless what is given, a name or an object, can be wrapped; `wrapped` is the ranker of the name."""
    if prefit and isinstance(given, str):
        raise ParameterError(f"prefit=True needs a fitted ranker, got the name {given!r}")
    if not prefit and not isinstance(wrapped, Ranker):
        raise ParameterError(
            f"ranker must be a name or a Ranker, got {type(given).__name__}: pass prefit=True if it is fitted"
        )


def scores_of(ranker: Any, queries: QuerySet) -> Float64:
    """Return the scores of a ranker, or of any model that predicts rows."""
    return np.asarray(ranker.predict(queries if isinstance(ranker, Ranker) else queries.X), dtype=np.float64)


def combine(
    ranker: Any,
    queries: QuerySet,
    evidence: Evidence | None,
    folds: tuple[Callable[[QuerySet], Ranker], int, int] | None,
    best: float,
    *,
    similar: bool,
) -> Combination:
    """Learn what the scores mean, and choose how much they count, from the evidence of queries.

    Parameters
    ----------
    ranker
        The fitted ranker.
    queries, evidence
        The queries, and what people chose.
    folds
        What fits such a ranker, the number of folds and their seed, to score queries that it has not seen; None: the
        ranker itself has not seen some of the queries.
    best
        The best grade.
    similar
        Whether to try the evidence of similar queries.
    """
    scores = scores_of(ranker, queries)
    if evidence is None or evidence.totals(queries).choices.sum() <= 0:
        if queries.y is None or not (queries.grades > 0).any():
            raise DataError(
                "nobody chose a candidate of these queries, and none has a grade above 0: pass queries whose texts and "
                "document ids are those of the evidence"
            )
        return from_grades(queries, scores, best)
    if folds is None:
        places, unseen = scores_of_unseen(ranker, queries, scores)
    else:
        fit, n_folds, seed = folds
        places, unseen = held_out_scores(fit, queries, scores, n_folds, seed)
    if evidence.totals(queries[places]).choices.sum() <= 0:  # people chose for queries that the ranker has seen only
        places, unseen = np.arange(len(queries)), scores
    return from_evidence(evidence, queries, scores, places, unseen, similar=similar)


def scores_of_unseen(ranker: Any, queries: QuerySet, scores: Float64) -> tuple[Int64, Float64]:
    """Return the positions and the scores of the queries that a ranker has not learned from; all if that is unknown."""
    learned = ranker.learned_from(queries) if isinstance(ranker, Ranker) else None
    if learned is None or learned.all():
        return np.arange(len(queries)), scores
    return np.flatnonzero(~learned), scores[~learned[queries.query_of_row]]


def held_out_scores(
    fit: Callable[[QuerySet], Ranker], queries: QuerySet, scores: Float64, n_folds: int, seed: int
) -> tuple[Int64, Float64]:
    """Return the positions of queries, and their scores by rankers that have not seen them.

    With too few queries to hold any out, these are all queries and the given scores.
    """
    everything = np.arange(len(queries))
    if len(queries) < 2 * n_folds:
        return everything, scores
    fold = np.random.default_rng(seed).permutation(len(queries)) % n_folds
    used = range(n_folds if len(queries) < _MANY_QUERIES else 1)
    try:
        unseen = [scores_of(fit(queries[fold != number]), queries[fold == number]) for number in used]
    except DataError:  # too few queries with different grades
        return everything, scores
    return np.concatenate([np.flatnonzero(fold == number) for number in used]), np.concatenate(unseen)


def from_grades(queries: QuerySet, scores: Float64, best: float) -> Combination:
    """Calibrate on grades if there is no evidence: judgments that are added later need only a common scale."""
    share = np.maximum(queries.grades.astype(np.float64), 0.0) / best
    calibration = Calibration().fit(scores, queries.offsets, Totals(np.ones(queries.n_rows), share))
    return Combination(calibration, Posterior(rate=calibration.rate_))


def from_evidence(
    evidence: Evidence, queries: QuerySet, scores: Float64, places: Int64, unseen: Float64, *, similar: bool
) -> Combination:
    """Calibrate on evidence, and choose on the clicks of the last fifth of the days how much it counts.

    Parameters
    ----------
    evidence
        What people chose.
    queries, scores
        The queries, and the scores of the ranker for them.
    places, unseen
        The positions of some of these queries, and their scores by a ranker that has not seen them.
    similar
        Whether to try the evidence of similar queries. It is not tried if the evidence was collected with a model of
        examination that does not fit: later clicks have the same bias, and would choose it.
    """
    held_out = queries[places]
    calibration = Calibration().fit(unseen, held_out.offsets, evidence.totals(held_out))
    start = Posterior(rate=calibration.rate_)
    if evidence.days is None:
        return Combination(calibration, start)
    first, last = evidence.days
    border = first + int(_LATE * (last - first + 1))
    days = first, border - 1
    early = evidence.totals(held_out, days=days)
    if border > last or early.choices.sum() <= 0:
        return Combination(calibration, start)
    on_early = Calibration().fit(unseen, held_out.offsets, early)
    late = evidence.totals(held_out, days=(border, last))
    rows = np.flatnonzero(late.looks > 0)
    clicks = LaterClicks(
        on_early.predict(unseen, held_out.offsets)[rows],
        held_out.query_of_row[rows],
        lambda half_life: evidence.totals(held_out, half_life=half_life, days=days).take(rows),
        late.take(rows),
    )
    posterior = choose_posterior(clicks, calibration.rate_, border - first)
    if not (similar and fits(evidence)) or not clicks.enough or len(queries) < 3:
        return Combination(calibration, posterior)
    kin = KinEvidence().fit(queries)
    seen = evidence.totals(queries, half_life=posterior.half_life, days=days)
    kin.remember(queries, seen, on_early.predict(scores, queries.offsets))
    neighbors = kin.neighbors(held_out)
    tried = {posterior: clicks.likelihood(posterior)}
    for width in _WIDTHS:
        found = kin.totals(held_out, neighbors, width).take(rows)
        for discount in _DISCOUNTS:
            other = replace(posterior, discount=discount, width=width)
            tried[other] = clicks.likelihood(other, found)
    best = max(tried, key=lambda each: float(tried[each].sum()))
    if not surely_better(tried[best], tried[posterior]):
        return Combination(calibration, posterior)
    seen = evidence.totals(queries, half_life=posterior.half_life)
    kin.remember(queries, seen, calibration.predict(scores, queries.offsets))
    return Combination(calibration, best, kin)


def fits(evidence: Evidence) -> bool:
    """Return False if the model of examination is known not to fit the log that evidence was collected from."""
    return bool(evidence.meta.get("examination", {}).get("fits", True))
