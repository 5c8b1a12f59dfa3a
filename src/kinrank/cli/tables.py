"""Comparisons as tables, and what runs lack as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from kinrank.measure import Measure
    from kinrank.study.comparison import Comparison, Coverage, Difference

DIFFERENCE = ("difference", "95% interval", "p")
COUNTS = ("wins", "ties", "losses")
PERMUTATION = ("permutation",)


def means_table(comparison: Comparison, measure: Measure, what: str, *, permutation: bool = False) -> Table:
    """The mean of every entrant, and its difference from the baseline."""
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
    """Every pair that was tested beside those with the baseline."""
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
    """What every entrant took to fit and to rank; nothing where that happened elsewhere."""
    table = Table(box=None, pad_edge=False)
    table.add_column("cost")
    runs = any(entrant.coverage is not None for entrant in comparison.entrants)
    for heading in ("fit, s", "rank, s", "ms a query", *(["unjudged of first ten"] if runs else [])):
        table.add_column(heading, justify="right")
    for entrant in comparison.entrants:
        fit, rank, covered = entrant.fit_seconds, entrant.rank_seconds, entrant.coverage
        table.add_row(
            entrant.name,
            "" if fit is None else f"{fit:.2f}",
            "" if rank is None else f"{rank:.2f}",
            "" if rank is None else f"{1000 * rank / len(comparison.queries):.2f}",
            *([] if covered is None else [f"{covered.unjudged_top:.1%}"]),
        )
    return table


def against_baseline(comparison: Comparison, measure: Measure) -> list[Difference]:
    """The differences from the baseline by one measure."""
    baseline = comparison.baseline.name
    return [each for each in comparison.differences if each.measure == measure and each.against == baseline]


def difference_cells(difference: Difference, *, permutation: bool) -> list[str]:
    """A difference, its interval, corrected p-values, wins, ties and losses."""
    paired = difference.paired
    low, high = paired.interval
    cells = [f"{paired.mean_difference:+.4f}", f"{low:+.4f} to {high:+.4f}", f"{difference.p_holm:.2g}"]
    if permutation:
        cells.append(f"{difference.p_permutation_holm:.2g}")
    return [*cells, *(f"{count:,}" for count in (paired.wins, paired.ties, paired.losses))]


def gaps(name: str, coverage: Coverage, n_documents: int) -> list[str]:
    """What a run lacks, and what it has that cannot be measured."""
    said = []
    if coverage.absent_documents:
        whole = f", among them all of {coverage.absent_queries:,} queries" if coverage.absent_queries else ""
        said.append(
            f"{name}: {coverage.absent_documents:,} of the {n_documents:,} documents of the data are not in the run"
            f"{whole}; they are ranked last"
        )
    if coverage.unknown_documents:
        said.append(f"{name}: {coverage.unknown_documents:,} documents are not in the data; they are left out")
    return said
