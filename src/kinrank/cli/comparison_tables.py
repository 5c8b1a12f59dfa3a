"""Tables and warnings that the commands print about a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinrank.measure import Measure, PairedComparison
    from kinrank.study.comparison import Comparison, Difference, Entrant

DIFFERENCE = ("difference", "95% interval", "p")
COUNTS = ("wins", "ties", "losses")
PERMUTATION = ("permutation",)


def means_table(comparison: Comparison, measure: Measure, what: str, *, permutation: bool = False) -> Table:
    """Return a table with the mean of each entrant and its difference from the baseline."""
    table = Table(box=None, pad_edge=False)
    table.add_column(what)
    table.add_column("mean", justify="right")
    tested = {each.name: each for each in against_baseline(comparison, measure)}
    if tested:
        for heading in (*DIFFERENCE, *(PERMUTATION if permutation else ()), *COUNTS):
            table.add_column(heading, justify="right")
    for entrant in comparison.entrants:
        difference = tested.get(entrant.name)
        cells = [] if difference is None else difference_cells(difference, permutation=permutation)
        table.add_row(entrant.name, f"{entrant.evaluation[measure]:.4f}", *cells)
    return table


def pairs_table(comparison: Comparison, measure: Measure) -> Table:
    """Return a table of the tested pairs without the baseline."""
    table = Table(box=None, pad_edge=False)
    table.add_column("entrant")
    table.add_column("against")
    for heading in (*DIFFERENCE, *PERMUTATION, *COUNTS):
        table.add_column(heading, justify="right")
    for each in comparison.differences:
        if each.measure == measure and each.against != comparison.baseline.name:
            table.add_row(each.name, each.against, *difference_cells(each, permutation=True))
    return table


def cost_table(comparison: Comparison) -> Table:
    """Return a table of fitting and ranking times; cells are empty if the time is unknown."""
    table = Table(box=None, pad_edge=False)
    table.add_column("cost")
    shares = [_unjudged(entrant, comparison) for entrant in comparison.entrants]
    for heading in ("fit (s)", "rank (s)", "ms per query", *(["unjudged in top 10"] if any(shares) else [])):
        table.add_column(heading, justify="right")
    for entrant, share in zip(comparison.entrants, shares, strict=True):
        fit, rank = entrant.fit_seconds, entrant.rank_seconds
        table.add_row(
            entrant.name,
            "" if fit is None else f"{fit:.2f}",
            "" if rank is None else f"{rank:.2f}",
            "" if rank is None else f"{1000 * rank / len(comparison.queries):.2f}",
            *([share] if any(shares) else []),
        )
    return table


def _unjudged(entrant: Entrant, comparison: Comparison) -> str:
    from kinrank.study.entrants import unjudged_in_top

    if entrant.coverage is not None:
        return f"{entrant.coverage.unjudged_top:.1%}"
    share = unjudged_in_top(comparison.queries, entrant.scores)
    return "" if share is None else f"{share:.1%}"


def against_baseline(comparison: Comparison, measure: Measure) -> list[Difference]:
    """Return the differences from the baseline in one measure."""
    baseline = comparison.baseline.name
    return [each for each in comparison.differences if each.measure == measure and each.against == baseline]


def difference_cells(difference: Difference, *, permutation: bool) -> list[str]:
    """Return the difference, its interval, corrected p-values, wins, ties and losses as text."""
    paired = difference.paired
    low, high = paired.interval
    cells = [f"{paired.mean_difference:+.4f}", f"{low:+.4f} to {high:+.4f}", f"{difference.p_holm:.2g}"]
    if permutation:
        cells.append(f"{difference.p_permutation_holm:.2g}")
    return [*cells, *(f"{count:,}" for count in (paired.wins, paired.ties, paired.losses))]


def difference_with_interval(paired: PairedComparison, *, p: float | None = None) -> str:
    """Return a mean difference with its confidence interval, and the p-value if given."""
    low, high = paired.interval
    tested = "" if p is None else f", p = {p:.2g}"
    return f"{paired.mean_difference:+.4f} ({paired.confidence:.0%}: {low:+.4f} to {high:+.4f}{tested})"


def correction_note(comparison: Comparison, prefix: str) -> str:
    """Return a note on the Holm correction, or an empty text if there is only one test."""
    n_tests = len(comparison.differences)
    return f"{prefix}Holm-corrected for {n_tests} tests" if n_tests > 1 else ""


def coverage_warnings(comparison: Comparison) -> Iterator[str]:
    """Yield a warning for each run that lacks judged documents or has documents that are not in the data."""
    n_documents = comparison.queries.n_rows
    for entrant in comparison.entrants:
        coverage = entrant.coverage
        if coverage is None:
            continue
        if coverage.absent_documents:
            whole = f", including all documents of {coverage.absent_queries:,} queries"
            yield (
                f"{entrant.name}: {coverage.absent_documents:,} of the {n_documents:,} documents in the data are "
                f"missing from the run{whole if coverage.absent_queries else ''}; they are ranked last"
            )
        if coverage.unknown_documents:
            yield f"{entrant.name}: {coverage.unknown_documents:,} documents are not in the data; they are ignored"
