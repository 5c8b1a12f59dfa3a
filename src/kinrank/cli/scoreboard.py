"""Runs measured on the same judged queries, and what they lack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.data.trec import read_run, scores_from_run
from kinrank.errors import DataError
from kinrank.measure import Evaluation, Measure, PairedComparison, compare_paired, holm
from kinrank.measure import evaluate as evaluate_scores


@dataclass(frozen=True)
class MeasuredRun:
    """What measures say of a run, and how far the run covers the data.

    Attributes
    ----------
    path : str
        Its file.
    evaluation : Evaluation
        The measures.
    absent_documents : int
        Documents of the data that the run lacks; they are ranked last.
    absent_queries : int
        Queries of the data of which the run has no document.
    unknown_documents : int
        Documents of the run that the data lacks; they are left out.
    """

    path: str
    evaluation: Evaluation
    absent_documents: int
    absent_queries: int
    unknown_documents: int


@dataclass(frozen=True)
class Comparison:
    """A run against the baseline by one measure; `p_holm` is corrected for all comparisons made together."""

    paired: PairedComparison
    p_holm: float


def measure_run(path: str, queries: QuerySet, measures: Iterable[Measure]) -> MeasuredRun:
    """Measure a TREC run on judged queries."""
    run = read_run(path)
    scores = scores_from_run(queries, run, absent=np.nan)
    absent = np.isnan(scores)
    if absent.all():
        raise DataError(
            f"{path}: no document of this run is in the data; check that query ids (such as "
            f"{run.qid[0].item()!r} and {queries.qid[0].item()!r}) and document ids are alike"
        )
    # Measures want numbers: the next one below the lowest score ranks the absent last.
    scores[absent] = np.nextafter(np.nanmin(scores), -np.inf)
    found = np.bincount(queries.query_of_row, weights=~absent, minlength=len(queries))
    return MeasuredRun(
        path=path,
        evaluation=evaluate_scores(queries, scores, measures),
        absent_documents=int(absent.sum()),
        absent_queries=int((found == 0).sum()),
        unknown_documents=len(run) - int((~absent).sum()),
    )


def compare_runs(runs: Sequence[MeasuredRun], measures: Sequence[Measure]) -> dict[tuple[str, Measure], Comparison]:
    """Every run but the first against the first, by every measure, corrected together."""
    baseline, *others = runs
    pairs = {
        (run.path, measure): compare_paired(run.evaluation.per_query[measure], baseline.evaluation.per_query[measure])
        for measure in measures
        for run in others
    }
    corrected = holm([paired.p for paired in pairs.values()]).tolist()
    return {key: Comparison(paired, p) for (key, paired), p in zip(pairs.items(), corrected, strict=True)}
