"""From a comparison to the report of a report."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.measure import PairedComparison, compare_paired
from kinrank.measure.difficulty import difficulty_levels
from kinrank.rankers.local.nearest import neighbor_part
from kinrank.study.comparison import Comparison
from kinrank.study.leaks import find_leaks
from kinrank.study.report.contents import LeakCheck, NeighborAnalysis, Report
from kinrank.study.report.names import query_names
from kinrank.study.report.neighbor_analysis import analyze_neighbors, sample
from kinrank.study.report.timing import time_rankers

STEPS = 3
"""How often `collect` says that a part is done."""

_TIMED = 100


def collect(
    comparison: Comparison,
    subject: str | None = None,
    *,
    title: str = "Per-query ranking",
    name_column: str | None = None,
    judged: QuerySet | None = None,
    validation: QuerySet | None = None,
    advance: Callable[[int], None] = lambda _: None,
    seed: int = 0,
) -> Report:
    """Compute everything that a report says.

    Parameters
    ----------
    comparison
        Two or more entrants on the test queries.
    subject
        The entrant that the report is about; the second, after the baseline, where not given.
    title
        What was measured, in your words.
    name_column
        The query column that has the text of each query; see `kinrank.study.report.names.query_names`.
    judged
        The queries that were learned from: neighbors get their names from them, and test queries that are among them,
        or very like one of them, are told.
    validation
        Queries to show the effect of k on; test queries where not given.
    advance
        Told after each of `STEPS` parts.
    seed
        Of samples, map and groups.
    """
    if len(comparison.entrants) < 2:
        raise ParameterError("a report needs a baseline and something to hold against it: give two entrants or more")
    chosen = comparison.entrants[1].name if subject is None else comparison[subject].name
    if chosen == comparison.baseline.name:
        raise ParameterError(f"{chosen!r} is the baseline: a report is about another entrant")
    queries = comparison.queries
    rankers = {each.name: each.ranker for each in comparison.entrants if each.ranker is not None}
    timings = time_rankers(rankers, sample(queries, _TIMED, seed))
    advance(1)
    names = {} if judged is None else dict(zip(map(str, judged.qid), query_names(judged, name_column), strict=True))
    kinship = _kinship(comparison, chosen, names, validation, seed)
    advance(1)
    guard = _leak_check(comparison, chosen, judged)
    advance(1)
    return Report(
        title=title,
        comparison=comparison,
        subject=chosen,
        names=query_names(queries, name_column),
        levels=difficulty_levels(queries.grades, queries.offsets),
        timings=timings,
        kinship=kinship,
        leak_check=guard,
    )


def _kinship(
    comparison: Comparison, subject: str, judged_names: dict[str, str], validation: QuerySet | None, seed: int
) -> NeighborAnalysis | None:
    """Of the subject where it learns from neighbors, alone or as a part of it, else of the first entrant that does."""
    measure = comparison.measures[0]
    gains = comparison[subject].per_query(measure) - comparison.baseline.per_query(measure)
    for entrant in sorted(comparison.entrants, key=lambda each: each.name != subject):
        ranker = neighbor_part(entrant.ranker)
        if ranker is not None:
            return analyze_neighbors(
                entrant.name,
                ranker,
                comparison.queries,
                gains,
                measure,
                whole=ranker is entrant.ranker,
                judged_names=judged_names,
                validation=validation,
                seed=seed,
            )
    return None


def _leak_check(comparison: Comparison, subject: str, judged: QuerySet | None) -> LeakCheck | None:
    """By what was learned from where it is given, and by what each entrant knows of that itself."""
    queries = comparison.queries
    own = {each.name: each.learned_from(queries) for each in comparison.entrants}
    told = [known for known in own.values() if known is not None]
    if judged is None and not told:
        return None
    seen, near = np.zeros((2, len(queries)), dtype=np.bool_)
    if judged is not None:
        leaks = find_leaks(judged, queries)
        seen[leaks.seen_queries], near[leaks.near_queries] = True, True
    seen = np.any([seen, *told], axis=0)
    near &= ~seen
    # What was fitted for the comparison learned from `judged`, also where it does not remember.
    checked = {each.name for each in comparison.entrants if judged is not None and each.fit_seconds is not None}
    return LeakCheck(
        seen=int(seen.sum()),
        near=None if judged is None else int(near.sum()),
        seen_by=tuple(name for name, known in own.items() if known is not None and known.any()),
        unchecked=tuple(name for name, known in own.items() if known is None and name not in checked),
        others=_gain_without(np.flatnonzero(seen | near), comparison, subject),
    )


def _gain_without(known: NDArray[np.int64], comparison: Comparison, subject: str) -> PairedComparison | None:
    """What the subject gains on the other queries; None where those are all, or too few to compare."""
    measure = comparison.measures[0]
    after, before = (np.delete(each.per_query(measure), known) for each in (comparison[subject], comparison.baseline))
    if not len(known) or np.isfinite(after).sum() < 2:
        return None
    return compare_paired(after, before)
