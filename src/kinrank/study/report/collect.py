"""Compute the contents of a report from a comparison."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kinrank
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.measure import PairedComparison, compare_paired
from kinrank.measure.difficulty import difficulty_levels
from kinrank.rankers.local.nearest import neighbor_part
from kinrank.rankers.local.texts import with_vectors
from kinrank.study.answer import Answer
from kinrank.study.comparison import Comparison, Fittable
from kinrank.study.ladder import DECISIVE, climb, missing_precedents, missing_trees, rung_of, rungs_of
from kinrank.study.report.contents import LeakCheck, NeighborAnalysis, Report, Timing
from kinrank.study.report.ingredients import ingredient_shares
from kinrank.study.report.names import query_names
from kinrank.study.report.neighbor_analysis import analyze_neighbors, sample
from kinrank.study.report.shares import groups_by_column
from kinrank.study.study import Study

STEPS = 5
"""Number of calls of `advance` in `collect`."""

_TIMED = 100


def collect(
    comparison: Comparison,
    subject: str | None = None,
    *,
    title: str = "Per-query ranking",
    name_column: str | None = None,
    judged: QuerySet | None = None,
    validation: QuerySet | None = None,
    ladder: bool = True,
    by: str | None = None,
    titles: Mapping[str, str] | None = None,
    sources: Mapping[str, str] | None = None,
    study: Study | None = None,
    advance: Callable[[int], None] = lambda _: None,
    seed: int = 0,
) -> Report:
    """Compute everything that a report shows.

    Parameters
    ----------
    comparison
        Two or more entrants on the test queries.
    subject
        Name of the entrant that the report is about; by default the second, after the baseline.
    title
        Title of the report.
    name_column
        Query column with the name of each query; see `kinrank.study.report.names.query_names`.
    judged
        Training queries, to name neighbors and to find test queries seen in training.
    validation
        Queries to show the effect of k on; by default the test queries.
    ladder
        Whether to fit the rungs of `kinrank.study.ladder` that `kin` is compared with on `judged`, if they are not in
        the comparison.
    by
        Query column that names the kind of each query, such as its intent; by default, queries that are ranked by
        similar features are of one kind.
    titles
        Titles of documents by id. With them, the report shows the lists before and after of the queries that changed
        most.
    sources
        Where the data came from, by what it was used for, to print at the end.
    study
        The study that measured the comparison and has checked it for leaks; by default one of `judged`.
    advance
        Called with 1 after each of `STEPS` steps.
    seed
        Seed for samples, map and groups.
    """
    if len(comparison.entrants) < 2:
        raise ParameterError(
            f"a report needs a baseline and a subject: pass two entrants, got {len(comparison.entrants)}"
        )
    chosen = comparison.entrants[1].name if subject is None else comparison[subject].name
    if chosen == comparison.baseline.name:
        raise ParameterError(f"subject {chosen!r} is the baseline: choose another entrant")
    queries = comparison.queries
    if titles is not None and queries.doc_id is None:
        raise ParameterError("titles need document ids, and the test queries have none")
    groups = {} if by is None else groups_by_column(queries, by)
    rankers = {each.name: each.ranker for each in comparison.entrants if each.ranker is not None}
    timings = time_rankers(rankers, sample(queries, _TIMED, seed))
    advance(1)
    names = {} if judged is None else dict(zip(map(str, judged.qid), query_names(judged, name_column), strict=True))
    own_names = query_names(queries, name_column)
    neighbors = _analyze_neighbors(
        comparison, chosen, validation, seed, names=own_names, groups=groups, judged_names=names
    )
    advance(1)
    study = study or _study(comparison, judged)
    leak_check = _leak_check(comparison, chosen, study)
    advance(1)
    answer = _answer(comparison, chosen, study, ladder=ladder)
    advance(1)
    ingredients = ingredient_shares(comparison[chosen].ranker, sample(queries, _TIMED, seed))
    advance(1)
    return Report(
        title=title,
        comparison=comparison,
        subject=chosen,
        names=own_names,
        levels=difficulty_levels(queries.grades, queries.offsets),
        timings=timings,
        neighbors=neighbors,
        leak_check=leak_check,
        answer=answer,
        ingredients=ingredients,
        by=by,
        groups=groups,
        titles=titles,
        sources=sources or {},
        made=made_now(),
    )


def _answer(comparison: Comparison, subject: str, study: Study, *, ladder: bool) -> Answer | None:
    """Return what the ladder says about the subject."""
    ranker = comparison[subject].ranker
    rungs, note = rungs_of(comparison.entrants, subject), ""
    if ranker is None or rung_of(ranker) not in ("local", "kin"):
        return None
    if rung_of(ranker) == "local":
        rungs = {rung: entrant for rung, entrant in rungs.items() if rung not in ("kin", "without")}
    elif study.folds and ladder:
        rungs = climb(ranker, study, rungs=(*DECISIVE, "precedents"), measured=rungs)
        train = study.folds[0].train
        note = missing_trees(train) or missing_precedents(train, study.group)
    return study.answer(study.with_choices(rungs), note=note)


def _analyze_neighbors(
    comparison: Comparison, subject: str, validation: QuerySet | None, seed: int, **naming: Any
) -> NeighborAnalysis | None:
    """Analyze the subject if it, or a part of it, learns from neighbors; else the first entrant that does."""
    measure = comparison.measures[0]
    gains = comparison[subject].per_query(measure) - comparison.baseline.per_query(measure)
    for entrant in sorted(comparison.entrants, key=lambda each: each.name != subject):
        ranker = neighbor_part(entrant.ranker)
        if ranker is not None:
            return analyze_neighbors(
                entrant.name,
                ranker,
                with_vectors(entrant.ranker, comparison.queries),
                gains,
                measure,
                whole=ranker is entrant.ranker,
                validation=None if validation is None else with_vectors(entrant.ranker, validation),
                seed=seed,
                **naming,
            )
    return None


def _study(comparison: Comparison, judged: QuerySet | None) -> Study:
    """Return the test queries, checked against the training queries if they are known; the page shows leaks."""
    if judged is None:
        return Study.of_test(comparison.queries, comparison.measures, leaks="warn")
    return Study.split(judged, comparison.queries, measures=comparison.measures, leaks="warn")


def _leak_check(comparison: Comparison, subject: str, study: Study) -> LeakCheck | None:
    """Check test queries against the training queries, and against what each entrant was fitted on."""
    queries = comparison.queries
    by_entrant = {each.name: each.learned_from(queries) for each in comparison.entrants}
    recorded = [trained_on for trained_on in by_entrant.values() if trained_on is not None]
    if not study.folds and not recorded:
        return None
    seen, near = np.zeros((2, len(queries)), dtype=np.bool_)
    for leaks in study.reports:
        seen[leaks.seen_queries], near[leaks.near_queries] = True, True
    seen = np.any([seen, *recorded], axis=0)
    near &= ~seen
    # Entrants fitted for the comparison were fitted on the training queries, even if they do not store query ids.
    checked = {each.name for each in comparison.entrants if study.folds and each.fit_seconds is not None}
    return LeakCheck(
        seen=int(seen.sum()),
        near=None if not study.folds else int(near.sum()),
        seen_by=tuple(name for name, known in by_entrant.items() if known is not None and known.any()),
        unchecked=tuple(name for name, known in by_entrant.items() if known is None and name not in checked),
        others=_gain_without(np.flatnonzero(seen | near), comparison, subject),
    )


def _gain_without(known: NDArray[np.int64], comparison: Comparison, subject: str) -> PairedComparison | None:
    """Return the gain on the other queries; None if those are all queries, or too few to compare."""
    measure = comparison.measures[0]
    after, before = (np.delete(each.per_query(measure), known) for each in (comparison[subject], comparison.baseline))
    if not len(known) or np.isfinite(after).sum() < 2:
        return None
    return compare_paired(after, before)


_PACKAGES = ("numpy", "scipy", "scikit-learn", "lightgbm")


def made_now() -> str:
    """Return the time, and the versions that a result may depend on."""
    versions = [f"kinrank {kinrank.__version__}", f"Python {platform.python_version()}"]
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, with {', '.join(versions)}"


def time_rankers(rankers: Mapping[str, Fittable], queries: QuerySet) -> tuple[Timing, ...]:
    """Time fitted rankers on one query at a time, in turns, so that load on the machine affects all of them.

    Parameters
    ----------
    rankers
        Fitted rankers by name.
    queries
        Queries to rank. Each ranker first ranks one query untimed.
    """
    for ranker in rankers.values():
        ranker.predict(queries[:1])
    milliseconds: dict[str, list[float]] = {name: [] for name in rankers}
    for query in queries:
        for name, ranker in rankers.items():
            start = time.perf_counter()
            ranker.predict(query)
            milliseconds[name].append(1000 * (time.perf_counter() - start))
    return tuple(
        Timing(name, float(np.median(values)), float(np.quantile(values, 0.95)))
        for name, values in milliseconds.items()
    )
