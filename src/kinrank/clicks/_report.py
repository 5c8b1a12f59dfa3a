"""How far judgments from clicks can be trusted: stability, later clicks, coverage and agreement with people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from kinrank.arrays import Float64, Int64
from kinrank.clicks._counts import DAYS, ClickCounts, Funnel, Numbers
from kinrank.clicks.examination import Examination, estimate_examination
from kinrank.clicks.judgments import Attractiveness, estimate_attractiveness
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import normalize_text
from kinrank.errors import DataError

_BINS = (1, 10, 100, 1_000, 10_000)
_MIN_IMPRESSIONS = 20.0
_SURE = 1.5  # ends of the 95% interval of a rank's examination, apart by at most this factor
_STABLE = 0.5  # rank correlation between days from which documents are said to keep their order


@dataclass(frozen=True)
class Coverage:
    """Queries with a similar number of impressions."""

    label: str
    queries: int
    impressions: float
    weight: float


@dataclass(frozen=True)
class _ClickQuality:
    """How far the judgments can be trusted; None if the log cannot answer."""

    coverage: list[Coverage]
    """Queries by their number of impressions."""
    stability: tuple[float, int] | None
    """The rank correlation of attractiveness between even and odd days, and the number of documents compared."""
    perplexity: dict[str, float] | None
    """The perplexity of clicks in the last fifth of the time by method, learned before; 1 is perfect."""
    agreement: tuple[dict[str, float], int] | None
    """The share of pairs of documents in the order of human grades by method, and the number of pairs."""


def measure_quality(
    counts: ClickCounts, examination: Examination, found: Attractiveness, human: QuerySet | None = None
) -> _ClickQuality:
    """Measure how far the judgments can be trusted.

    Judgments by people have the query texts and document ids of the log.
    """
    return _ClickQuality(
        coverage=_coverage(counts, found),
        stability=_stability(counts, examination, found.prior_strength),
        perplexity=_perplexity(counts, examination, found.prior_strength),
        agreement=None if human is None else _agreement(counts, found, human),
    )


def _coverage(counts: ClickCounts, found: Attractiveness) -> list[Coverage]:
    shown = np.add.reduceat(counts.by_pair(counts.impressions), counts.query_offsets[:-1])
    weight = np.add.reduceat(found.weight, counts.query_offsets[:-1]) / np.diff(counts.query_offsets)
    rows = []
    for low, high in zip(_BINS, (*_BINS[1:], np.inf), strict=True):
        part = (shown >= low) & (shown < high)
        label = f"{low:,} to {high - 1:,.0f}" if np.isfinite(high) else f"{low:,} or more"
        if part.any():
            rows.append(Coverage(label, int(part.sum()), float(shown[part].sum()), float(weight[part].mean())))
    return rows


def _refit(part: ClickCounts, model: str, strength: float) -> tuple[Examination, Attractiveness] | None:
    if model == "cascade" or not part.impressions.any():  # what was examined is not counted by part
        return None
    try:
        examination = estimate_examination(part, model)
        return examination, estimate_attractiveness(part, examination, strength=strength)
    except DataError:
        return None


def _stability(counts: ClickCounts, examination: Examination, strength: float) -> tuple[float, int] | None:
    parts = [counts.part(day) for day in DAYS]
    fitted = [_refit(part, examination.model, strength) for part in parts]
    often = np.minimum(*(part.by_pair(part.impressions) for part in parts)) >= _MIN_IMPRESSIONS
    first, second = fitted
    if first is None or second is None or often.sum() < 3:
        return None
    return float(spearmanr(first[1].mean[often], second[1].mean[often]).statistic), int(often.sum())


def _perplexity(counts: ClickCounts, examination: Examination, strength: float) -> dict[str, float] | None:
    early, late = counts.part("early"), counts.part("late")
    fitted = _refit(early, examination.model, strength)
    if fitted is None or not late.impressions.any():
        return None
    slope, offset = fitted[0].at(counts.rank)
    known = slope > 0
    predicted = {examination.model: slope * fitted[1].mean[counts.pair_of_cell] + offset}
    rate = (early.by_rank(early.clicks) + 1) / (early.by_rank(early.impressions) + 2)
    predicted["click rate of the rank"] = rate[counts.rank - 1]
    plain = _refit(early, "none", strength)
    if plain is not None:
        predicted["click rate of the document"] = plain[1].mean[counts.pair_of_cell]
    return {name: _score(p[known], late.impressions[known], late.clicks[known]) for name, p in predicted.items()}


def _score(p: Float64, shown: Numbers, clicks: Numbers) -> float:
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return float(2 ** -((clicks * np.log2(p) + (shown - clicks) * np.log2(1 - p)).sum() / shown.sum()))


def _agreement(counts: ClickCounts, found: Attractiveness, human: QuerySet) -> tuple[dict[str, float], int] | None:
    """Compare the order of documents with that of human grades, by query text and document id."""
    texts = human.query_columns["text"].tolist()
    documents = [] if human.doc_id is None else human.doc_id.astype(np.str_).tolist()
    query_of_row = human.query_of_row
    grade_of = {
        (normalize_text(texts[query_of_row[row]]), document): float(grade)
        for row, (document, grade) in enumerate(zip(documents, human.grades.tolist(), strict=True))
    }
    keys = zip(counts.query.to_pylist(), counts.document.to_pylist(), strict=True)
    grade = np.array([grade_of.get(key, np.nan) for key in keys])
    rate = counts.by_pair(counts.clicks) / counts.by_pair(counts.impressions)
    rank = counts.by_pair(counts.rank * counts.impressions) / counts.by_pair(counts.impressions)
    judged = np.flatnonzero(np.isfinite(grade))
    scores = {"corrected": found.mean, "click rate": rate, "mean rank": -rank}
    right, pairs = _concordant(counts.query_codes[judged], grade[judged], [each[judged] for each in scores.values()])
    return (dict(zip(scores, (right / pairs).tolist(), strict=True)), pairs) if pairs else None


def _concordant(query: Int64, grade: Float64, scores: list[Float64]) -> tuple[Float64, int]:
    """Count the pairs of one query with different grades that each score orders alike; ties count half."""
    right, pairs = np.zeros(len(scores)), 0
    for start, stop in zip(*_runs(query), strict=True):
        better = grade[start:stop, None] > grade[None, start:stop]
        pairs += int(better.sum())
        for number, score in enumerate(scores):
            difference = score[start:stop, None] - score[None, start:stop]
            right[number] += (better * ((difference > 0) + 0.5 * (difference == 0))).sum()
    return right, pairs


def _runs(values: Int64) -> tuple[list[int], list[int]]:
    starts = np.flatnonzero(np.r_[True, np.diff(values) != 0]) if len(values) else np.array([], dtype=np.int64)
    return starts.tolist(), [*starts[1:].tolist(), len(values)] if len(values) else []


def funnel_rows(funnel: Funnel) -> list[tuple[str, str, str]]:
    """Return stage, reason and number of rows, as text."""
    rows = []
    for stage, read in funnel.read.items():
        rows.append((stage, "read", f"{read:,}"))
        dropped = [(why, number) for (of, why), number in funnel.dropped.items() if of == stage]
        rows += [(stage, f"dropped: {why}", f"{number:,}") for why, number in dropped]
        rows.append((stage, "used", f"{funnel.kept(stage):,}"))
    return rows


def trust(examination: Examination, quality: _ClickQuality) -> str:
    """Return whether the judgments can be trusted, and for which ranks, in words."""
    if not examination.fits:
        return f"Do not trust this log as it is: the model {examination.model} does not fit it. See the warning."
    if examination.model in ("cascade", "none"):
        return f"Whether this log can be trusted is not known: the model {examination.model} is assumed, not estimated."
    sure = (examination.low > 0) & (examination.high <= _SURE * examination.low)
    if len(examination.ranks) < 2 or not sure[1:].any():
        return "Do not trust this log yet: how often ranks are examined is too uncertain. Collect more clicks."
    ranks = _in_words(examination.ranks[sure])
    predicted = quality.perplexity or {}
    if predicted and predicted[examination.model] > predicted["click rate of the rank"]:
        return "Do not trust this log: later clicks are predicted better by the rank alone than by the document."
    if quality.stability is None:
        return f"Trust this log for {ranks}, with care: whether other days say the same is not known."
    if quality.stability[0] < _STABLE:
        return f"Do not trust this log yet: {ranks} are known, but other days order documents otherwise."
    return f"Trust this log for {ranks}: their examination is known within a factor of {_SURE:g}, and other days agree."


def _in_words(ranks: Int64) -> str:
    """Return ranks as runs, such as ranks 1 to 7 and 9."""
    runs = np.split(ranks, np.flatnonzero(np.diff(ranks) > 1) + 1)
    words = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return f"ranks {' and '.join(filter(None, [', '.join(words[:-1]), words[-1]]))}"


def quality_lines(examination: Examination, quality: _ClickQuality) -> Iterator[str]:
    """Yield how far the judgments can be trusted, in words: the answer first, then what it is from."""
    yield trust(examination, quality)
    total = sum(row.impressions for row in quality.coverage)
    for row in quality.coverage:
        share = f"{row.impressions / total:.1%} of the impressions"
        yield f"{row.queries:,} queries have {row.label} impressions: {share}, mean weight {row.weight:.2f}"
    if quality.stability is None:
        yield "Stability is unknown: the log has too few days or clicks to learn from even and odd days apart."
    else:
        correlation, documents = quality.stability
        yield (
            f"Learned from even and from odd days apart, the order of {documents:,} documents with at least 20 "
            f"impressions in both has a rank correlation of {correlation:.2f}."
        )
    if quality.perplexity is None:
        yield "Later clicks could not be predicted: the log has no times, or too few."
    else:
        yield f"Perplexity of the last fifth of the clicks, learned before: {_listed(quality.perplexity, '.4f')}."
    if quality.agreement is None:
        yield "Nothing here compares clicks with relevance: pass human judgments with --human."
    else:
        shares, pairs = quality.agreement
        yield f"Pairs of documents in the order of human grades, of {pairs:,}: {_listed(shares, '.3f')}."


def _listed(values: dict[str, float], form: str) -> str:
    return ", ".join(f"{name} {value:{form}}" for name, value in values.items())
