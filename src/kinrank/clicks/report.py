"""The page of ``kinrank clicks --report``: one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import pyarrow as pa

import kinrank
from kinrank.clicks.counts import ClickCounts
from kinrank.clicks.examination import Examination
from kinrank.clicks.funnel import Funnel
from kinrank.clicks.judgments import grade_counts
from kinrank.clicks.posterior import Attractiveness
from kinrank.clicks.quality import ClickQuality
from kinrank.data.textfile import PathLike, atomic_writer
from kinrank.registry import import_extra
from kinrank.study.report.charts import Frame, element, picture, polyline
from kinrank.study.report.page import content_policy


def write_click_report(
    path: PathLike,
    counts: ClickCounts,
    examination: Examination,
    found: Attractiveness,
    judgments: pa.Table,
    thresholds: Sequence[float],
    quality: ClickQuality,
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
        curve=safe(examination_curve(examination)),
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


def examination_curve(examination: Examination) -> str:
    """Draw the examination of ranks with its interval."""
    ranks, slope = examination.ranks.tolist(), examination.slope.tolist()
    low, high = examination.low.tolist(), examination.high.tolist()

    def draw(width: float) -> tuple[str, float]:
        frame = Frame(width, 260, left=48)
        across, up = frame.x(0.5, ranks[-1] + 0.5), frame.y(min(0.0, *low), max(1.05, *high))
        xs = [across(rank) for rank in ranks]
        band = polyline([*xs, *xs[::-1]], [up(value) for value in [*high, *low[::-1]]]) + "Z"
        parts = [
            frame.y_axis(up, ".1f"),
            frame.x_axis(across, ".0f", "rank"),
            element("path", class_="band", d=band),
            element("path", class_="line one", d=polyline(xs, [up(value) for value in slope])),
            *(
                element("circle", class_="dot gain", cx=x, cy=up(value), r=3.5)
                for x, value in zip(xs, slope, strict=True)
            ),
        ]
        return "".join(parts), frame.height

    values = ", ".join(f"{value:.2f} at {rank}" for rank, value in zip(ranks, slope, strict=True))
    return picture(draw, f"Examination of each rank relative to the first: {values}.")


def _sentences(quality: ClickQuality) -> list[str]:
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
