"""How far judgments from clicks can be trusted, and the page that shows it: one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import pyarrow as pa
from scipy.stats import spearmanr

import kinrank
from kinrank.arrays import Float64, Int64
from kinrank.clicks.counts import DAYS, ClickCounts, Funnel, Numbers
from kinrank.clicks.examination import Examination, estimate_examination
from kinrank.clicks.judgments import Attractiveness, estimate_attractiveness, grade_counts
from kinrank.data.files import PathLike, atomic_writer
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import normalize_text
from kinrank.errors import DataError
from kinrank.registry import import_extra
from kinrank.study.report.page import content_policy

# --- how far judgments from clicks can be trusted: stability, later clicks, coverage, agreement with people -----------


_BINS = (1, 10, 100, 1_000, 10_000)
_MIN_IMPRESSIONS = 20.0


@dataclass(frozen=True)
class Coverage:
    """Queries with a similar number of impressions."""

    label: str
    queries: int
    impressions: float
    weight: float


@dataclass(frozen=True)
class _ClickQuality:
    """What the report shows next to the curve; None if the log cannot answer."""

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

    Parameters
    ----------
    counts, examination, found
        The log, the model of examination, and the attractiveness of documents.
    human
        Judgments by people, whose query texts and document ids are those of the log.
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


# --- the page of ``kinrank clicks --report``: one HTML file that loads nothing ----------------------------------------


def write_click_report(
    path: PathLike,
    counts: ClickCounts,
    examination: Examination,
    found: Attractiveness,
    judgments: pa.Table,
    thresholds: Sequence[float],
    quality: _ClickQuality,
) -> None:
    """Write the report of judgments made from clicks."""
    jinja2 = import_extra("jinja2", "report")
    style = files("kinrank.study.report").joinpath("page.css").read_text("utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(files("kinrank.clicks").joinpath("report.html.j2").read_text("utf-8"))
    safe = environment.filters["safe"]
    cuts = [0.0, *(found.prior_mean * threshold for threshold in thresholds)]
    page = template.render(
        headline=f"{len(judgments):,} judgments from {counts.impressions.sum():,.0f} impressions",
        verdict=examination.verdict,
        warnings=examination.warnings,
        funnel=[(f"{stage}, {reason}", rows) for stage, reason, rows in funnel_rows(counts.funnel)],
        notes=[*counts.funnel.columns, *counts.funnel.notes],
        examined=examined_rows(examination),
        model=examination.model,
        grades=[(grade, f"{cuts[grade]:.3f}", f"{number:,}") for grade, number in grade_counts(judgments).items()],
        coverage=[
            (row.label, f"{row.queries:,}", f"{row.impressions / counts.impressions.sum():.1%}", f"{row.weight:.2f}")
            for row in quality.coverage
        ],
        sentences=_sentences(quality),
        perplexity=[(name, f"{value:.4f}") for name, value in (quality.perplexity or {}).items()],
        agreement=[(name, f"{value:.3f}") for name, value in (quality.agreement or ({}, 0))[0].items()],
        style=safe(style),
        policy=content_policy(style, ""),
        version=kinrank.__version__,
    )
    with atomic_writer(path) as stream:
        stream.write(page.encode("utf-8", "replace"))


def funnel_rows(funnel: Funnel) -> list[tuple[str, str, str]]:
    """Return stage, reason and number of rows, as text."""
    rows = []
    for stage, read in funnel.read.items():
        rows.append((stage, "read", f"{read:,}"))
        dropped = [(why, number) for (of, why), number in funnel.dropped.items() if of == stage]
        rows += [(stage, f"dropped: {why}", f"{number:,}") for why, number in dropped]
        rows.append((stage, "used", f"{funnel.kept(stage):,}"))
    return rows


def examined_rows(examination: Examination) -> list[tuple[str, ...]]:
    """Return each rank, how often users examine it relative to the first, and the interval, as text."""
    columns = (values.tolist() for values in (examination.ranks, examination.slope, examination.low, examination.high))
    return [
        (f"{rank}", f"{slope:.2f}", f"{low:.2f} to {high:.2f}") for rank, slope, low, high in zip(*columns, strict=True)
    ]


def _sentences(quality: _ClickQuality) -> list[str]:
    if quality.stability is None:
        stable = "Stability is unknown: the log has too few days or clicks to learn from even and odd days apart."
    else:
        correlation, documents = quality.stability
        stable = (
            f"Learned from even and from odd days apart, the order of {documents:,} documents with at least 20 "
            f"impressions in both has a rank correlation of {correlation:.2f}."
        )
    later = [] if quality.perplexity else ["Later clicks could not be predicted: the log has no times, or too few."]
    people = "Nothing here compares clicks with relevance: pass human judgments with --human."
    if quality.agreement is not None:
        people = f"Compared with human judgments on {quality.agreement[1]:,} pairs of documents of different grades."
    return [stable, *later, people]
