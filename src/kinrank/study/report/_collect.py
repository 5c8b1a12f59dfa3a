"""The contents of a report, as plain values, computed from a comparison before anything is drawn."""

from __future__ import annotations

import platform
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata

import numpy as np

import kinrank
from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.measure import Measure, PairedComparison
from kinrank.rankers._local.nearest import neighbor_part
from kinrank.rankers._local.texts import with_vectors
from kinrank.study._answer import Answer, Claim, NearAndFar, together
from kinrank.study._folds import wanted_families
from kinrank.study._leaks import TEXTS
from kinrank.study.comparison import Comparison, Difference, Entrant
from kinrank.study.ladder import DECISIVE, climb, missing_memory, missing_trees, rung_of, rungs_of
from kinrank.study.study import Study

STEPS = 3
"""Number of calls of `advance` in `collect`."""

_EXPLAINED = 200  # sample of queries whose own models are explained
_MAX_LENGTH = 80  # characters; long names only make the file larger


@dataclass(frozen=True, eq=False)
class _FeatureShares:
    """Share of each feature, as `feature_shares` returns it, in models learned from neighbors."""

    name: str
    """The entrant."""
    whole: bool
    """Whether this ranker is the entrant itself, or a part of it."""
    by_query: Float64
    """Shares in the model of each query of a sample; shape (queries, features)."""
    overall: Float64
    """Shares in the global model; shape (features,)."""


@dataclass(frozen=True)
class LeakCheck:
    """How many test queries were seen in training."""

    seen: int
    """Test queries that were seen in training."""
    near: int | None
    """Test queries with a near-duplicate in training; None if only ids could be compared."""
    seen_by: tuple[str, ...]
    """Entrants whose own records show that they were fitted on test queries."""
    unchecked: tuple[str, ...]
    """Entrants whose training queries are unknown."""
    others: PairedComparison | None
    """The subject compared with the baseline on the remaining test queries; None if those are too few, or all."""


@dataclass(frozen=True, eq=False)
class Report:
    """Everything that a report shows."""

    title: str
    """The user's title."""
    comparison: Comparison
    """The compared entrants, the baseline first."""
    subject: str
    """Name of the entrant that the report is about."""
    names: tuple[str, ...]
    """Names of the test queries."""
    shares: _FeatureShares | None
    """None if no entrant learns linear models from neighbors."""
    leak_check: LeakCheck | None
    """None if no training queries are known."""
    answer: Answer | None = None
    """What the ladder says about the subject; None if it has no model per query."""
    warnings: tuple[str, ...] = ()
    """What someone who reads the results should know before trusting them."""
    titles: Mapping[str, str] | None = None
    """Titles of documents by id, to show lists before and after."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where the data came from, by what it was used for."""
    made: str = ""
    """When the report was made, and with which versions."""

    @property
    def claim(self) -> Claim:
        """The subject against the baseline: as in the answer if it is one of its claims.

        Else Holm's correction covers all entrants, because the subject is the best of them.
        """
        difference = self.difference
        answered = () if self.answer is None else self.answer.claims
        for claim in answered:
            if (claim.name, claim.against) == (difference.name, difference.against):
                return claim
        others = [each.name for each in self.comparison.entrants[1:]]
        paired = [self.comparison.difference(name, self.measure).paired for name in others]
        claims = together([Claim(name, difference.against, each) for name, each in zip(others, paired, strict=True)])
        return claims[others.index(self.subject)]

    @property
    def near_and_far(self) -> tuple[NearAndFar, ...]:
        """The differences in which a ranker remembers judgments, with a near training query and without one."""
        return self.comparison.near_and_far_with(self.answer)

    @property
    def measure(self) -> Measure:
        """The main measure: the first of the comparison."""
        return self.comparison.measures[0]

    @property
    def subject_entrant(self) -> Entrant:
        """The entrant that the report is about."""
        return self.comparison[self.subject]

    @property
    def difference(self) -> Difference:
        """The subject compared with the baseline."""
        return self.comparison.difference(self.subject, self.measure)

    @property
    def gains(self) -> Float64:
        """Gain of each query over the baseline; NaN if the measure skips the query."""
        return self.subject_entrant.per_query(self.measure) - self.comparison.baseline.per_query(self.measure)


def collect(
    comparison: Comparison,
    subject: str | None = None,
    *,
    title: str = "Per-query ranking",
    name_column: str | None = None,
    judged: QuerySet | None = None,
    ladder: bool = True,
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
        Name of the entrant that the report is about; by default the best after the baseline, by the first measure.
    title
        Title of the report.
    name_column
        Query column with the name of each query; see `query_names`.
    judged
        Training queries, to find test queries seen in training.
    ladder
        Whether to fit the rungs of `kinrank.study.ladder` that `kin` is compared with on `judged`, if they are not in
        the comparison.
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
        Seed for samples.
    """
    if len(comparison.entrants) < 2:
        raise ParameterError(
            f"a report needs a baseline and a subject: pass two entrants, got {len(comparison.entrants)}"
        )
    best = max(comparison.entrants[1:], key=lambda entrant: entrant.evaluation[comparison.measures[0]])
    chosen = best.name if subject is None else comparison[subject].name
    if chosen == comparison.baseline.name:
        raise ParameterError(f"subject {chosen!r} is the baseline: choose another entrant")
    queries = comparison.queries
    if titles is not None and queries.doc_id is None:
        raise ParameterError("titles need document ids, and the test queries have none")
    names = query_names(queries, name_column)
    shares = _shares(comparison, chosen, seed)
    advance(1)
    study = study or _study(comparison, judged)
    leak_check = _leak_check(comparison, chosen, study)
    advance(1)
    answer = _answer(comparison, chosen, study, ladder=ladder)
    advance(1)
    return Report(
        title=title,
        comparison=comparison,
        subject=chosen,
        names=names,
        shares=shares,
        leak_check=leak_check,
        answer=answer,
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
        rungs = climb(ranker, study, rungs=(*DECISIVE, "everyone", "memory"), measured=rungs)
        train = study.folds[0].train
        note = missing_trees(train) or missing_memory(train, study.group)
    return study.answer(study.with_choices(rungs), note=note)


def _shares(comparison: Comparison, subject: str, seed: int) -> _FeatureShares | None:
    """Explain a sample by the subject if it, or a part of it, learns from neighbors; else by the first that does."""
    for entrant in sorted(comparison.entrants, key=lambda each: each.name != subject):
        ranker = neighbor_part(entrant.ranker)
        if ranker is None:
            continue
        drawn = np.sort(np.random.default_rng(seed).permutation(len(comparison.queries))[:_EXPLAINED])
        queries = with_vectors(entrant.ranker, comparison.queries)[drawn]
        explained = ranker.explain(queries)
        weights = np.array([each.weights for each in explained if each.weights is not None])
        overall = explained[0].global_weights
        if overall is not None:
            by_query = feature_shares(weights, queries)
            whole = ranker is entrant.ranker
            return _FeatureShares(entrant.name, whole, by_query, feature_shares(overall, queries))
    return None


def _study(comparison: Comparison, judged: QuerySet | None) -> Study:
    """Return the test queries, checked against the training queries if they are known; the page shows leaks."""
    families = wanted_families(None, comparison.queries, (entrant.remembers for entrant in comparison.entrants))
    if judged is None:
        return Study.of_test(comparison.queries, comparison.measures, leaks="warn", families=families)
    return Study.split(judged, comparison.queries, measures=comparison.measures, leaks="warn", families=families)


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
    known = seen | near
    # Entrants fitted for the comparison were fitted on the training queries, even if they do not store query ids.
    checked = {each.name for each in comparison.entrants if study.folds and each.fit_seconds is not None}
    return LeakCheck(
        seen=int(seen.sum()),
        near=None if not study.folds else int(near.sum()),
        seen_by=tuple(name for name, known in by_entrant.items() if known is not None and known.any()),
        unchecked=tuple(name for name, known in by_entrant.items() if known is None and name not in checked),
        others=study.difference_on(~known, comparison[subject], comparison.baseline) if known.any() else None,
    )


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


def feature_shares(weights: Float64, queries: QuerySet) -> Float64:
    """Return how much each feature decides a ranking, as signed shares whose absolute values sum to 1.

    A share is the weight of a feature times its typical spread among the candidates of a query. Weights alone cannot
    be compared between features with different units. The spread is the root of the mean variance within queries;
    missing values are ignored.

    `weights` is one vector per query, or a single one; the spread is that of the candidates of `queries`.
    """
    effects = weights * _spread_within(queries)
    totals = np.abs(effects).sum(axis=-1, keepdims=True)
    shares: Float64 = np.divide(effects, totals, out=np.zeros_like(effects), where=totals > 0)
    return shares


def _spread_within(queries: QuerySet) -> Float64:
    X = queries.X.astype(np.float64)
    known = np.isfinite(X)
    filled = np.where(known, X, 0.0)
    starts = queries.offsets[:-1]
    counts = np.maximum(np.add.reduceat(known, starts, axis=0, dtype=np.float64), 1.0)
    means = np.add.reduceat(filled, starts, axis=0) / counts
    deviations = np.where(known, X - np.repeat(means, queries.sizes, axis=0), 0.0)
    spread: Float64 = np.sqrt((deviations**2).sum(axis=0) / np.maximum(known.sum(axis=0), 1))
    return spread


def query_names(queries: QuerySet, column: str | None = None) -> tuple[str, ...]:
    """Return the name of each query.

    By default, names are in the first column of `kinrank.study._leaks.TEXTS`; without one, they are the ids.
    """
    if column is not None and column not in queries.query_columns:
        known = ", ".join(map(repr, queries.query_columns)) or "none"
        raise ParameterError(f"no query column {column!r} for the names of queries; query columns: {known}")
    ids = [str(qid) for qid in queries.qid.tolist()]
    found = column or next((each for each in TEXTS if each in queries.query_columns), None)
    if found is None or queries.query_columns[found].ndim != 1:
        return tuple(map(clean, ids))
    texts = (clean(str(text)) for text in queries.query_columns[found].tolist())
    return tuple(text or clean(qid) for text, qid in zip(texts, ids, strict=True))


def clean(text: str) -> str:
    """Return the text as one short line without control characters."""
    line = " ".join("".join(" " if unicodedata.category(sign) in ("Cc", "Cs") else sign for sign in text).split())
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 1].rstrip() + "…"
