"""Tables and warnings that the commands print about a comparison."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rich.table import Table

from kinrank.cli import console

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kinrank.data.queryset import QuerySet
    from kinrank.measure import Measure, PairedComparison
    from kinrank.study._answer import Answer, NearAndFar
    from kinrank.study.comparison import Comparison, Difference, Entrant


def means_table(comparison: Comparison, measure: Measure, what: str) -> Table:
    """Return a table with the mean of each entrant and its difference from the baseline."""
    table = Table(box=None, pad_edge=False)
    table.add_column(what)
    table.add_column("mean", justify="right")
    tested = {each.name: each for each in against_baseline(comparison, measure)}
    if tested:
        _add_headings(table, comparison)
    for entrant in comparison.entrants:
        difference = tested.get(entrant.name)
        cells = [] if difference is None else difference_cells(difference, comparison)
        table.add_row(entrant.name, f"{entrant.evaluation[measure]:.4f}", *cells)
    return table


def cost_table(comparison: Comparison) -> Table:
    """Return a table of fitting and ranking times, of all test queries at once; cells are empty if it is unknown."""
    table = Table(box=None, pad_edge=False)
    table.add_column("cost")
    shares = [_unjudged(entrant, comparison) for entrant in comparison.entrants]
    headings = ["fit (s)", "rank (s)", "ms per query in one batch", *(["unjudged in top 10"] if any(shares) else [])]
    for heading in headings:
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
    from kinrank.study._entrants import unjudged_in_top

    if entrant.coverage is not None:
        return f"{entrant.coverage.unjudged_top:.1%}"
    share = unjudged_in_top(comparison.queries, entrant.scores)
    return "" if share is None else f"{share:.1%}"


def against_baseline(comparison: Comparison, measure: Measure) -> list[Difference]:
    """Return the differences from the baseline in one measure."""
    baseline = comparison.baseline.name
    return [each for each in comparison.differences if each.measure == measure and each.against == baseline]


def _add_headings(table: Table, comparison: Comparison) -> None:
    holm = ("Holm",) if len(comparison.differences) > 1 else ()
    for heading in ("difference", "95% interval", "p", *holm, "wins", "ties", "losses"):
        table.add_column(heading, justify="right")


def difference_cells(difference: Difference, comparison: Comparison) -> list[str]:
    """Return the difference, its interval, p-values, wins, ties and losses as text."""
    paired = difference.paired
    low, high = paired.interval
    cells = [f"{paired.mean_difference:+.4f}", f"{low:+.4f} to {high:+.4f}", f"{paired.p:.2g}"]
    if len(comparison.differences) > 1:
        cells.append(f"{difference.p_holm:.2g}")
    return [*cells, *(f"{count:,}" for count in (paired.wins, paired.ties, paired.losses))]


def print_traffic(found: Answer | None) -> None:
    """Print what choices gain on recurring, similar and new queries, if that was measured."""
    if found is None or found.choices is None:
        return
    headings, *rows = found.choices.table
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    for result in (table, found.choices.note, ""):
        console.print_result(result)


def print_near_and_far(found: Sequence[NearAndFar]) -> None:
    """Print what rankers that remember judgments gain for queries with a near training query, and without one."""
    for each in found:
        console.print_result(each.text)
    if found:
        console.print_result("")


def difference_with_interval(paired: PairedComparison, *, tested: str = "") -> str:
    """Return a mean difference with its confidence interval, and how it was tested if given."""
    low, high = paired.interval
    end = f", {tested}" if tested else ""
    return f"{paired.mean_difference:+.4f} ({paired.confidence:.0%}: {low:+.4f} to {high:+.4f}{end})"


def note_on_tests(comparison: Comparison) -> str:
    """Return how the differences were tested, and which tests Holm's correction covers."""
    groups = comparison.differences[0].paired.n_groups
    by = "" if groups is None else f", by {groups:,} groups of queries"
    n_tests = len(comparison.differences)
    corrected = f"; Holm: corrected for these {n_tests} tests" if n_tests > 1 else ""
    return f"p: paired t-test against {comparison.baseline.name}{by}{corrected}"


def recommendation(comparison: Comparison, measure: Measure, data: str) -> str:
    """Return what runs today, what is recommended in its place, and the command for that."""
    from kinrank.registry.notation import split_call
    from kinrank.study._answer import LEVEL

    today = comparison.baseline
    start = f"Today: {today.name} {today.evaluation[measure]:.4f}."
    better = [
        each
        for each in against_baseline(comparison, measure)
        if each.paired.mean_difference > 0 and max(each.paired.p, each.p_holm) <= LEVEL
    ]
    if not better:
        return f"{start} Keep it: that another entrant is better is not shown."
    best = max(better, key=lambda each: each.paired.mean_difference)
    [entrant] = [each for each in comparison.entrants if each.name == best.name]
    line = (
        f"{start} Recommended: {best.name} {entrant.evaluation[measure]:.4f} ({difference_with_interval(best.paired)})"
    )
    if entrant.origin == "model":
        return f"{line}:\n  {shlex.join(['kinrank', 'admin', 'models', 'STORE', '--publish', best.name])}"
    if entrant.origin != "ranker":
        return f"{line}."
    ranker, settings = split_call(best.name, "ranker")
    words = ["kinrank", "train", data, "--ranker", ranker, "--model", "model"]
    return f"{line}:\n  {shlex.join([*words, *(word for text in settings for word in ('--set', text))])}"


def comparison_warnings(
    comparison: Comparison, answer: Answer | None, *, unchecked: Sequence[str], evidence: bool
) -> Iterator[str]:
    """Yield what someone who reads a comparison should know.

    `unchecked` are models whose training queries are unknown; `evidence` is whether evidence was given.
    """
    from kinrank.cli.inputs import perfect_warnings

    for name in unchecked:
        yield f"{name}: its training queries are unknown, so overlap with the test queries was not checked"
    # All folds have the same evidence.
    rankers = {each.name: each.parts[0].ranker if each.parts else each.ranker for each in comparison.entrants}
    yield from evidence_warnings(rankers, comparison.queries)
    yield from coverage_warnings(comparison)
    if evidence and (answer is None or answer.choices is None):
        yield "--evidence is not used: choices are measured on top of kin or knn, so compare one with another ranker"
    yield from perfect_warnings({each.name: each.evaluation[comparison.measures[0]] for each in comparison.entrants})


def evidence_warnings(rankers: Mapping[str, object], queries: QuerySet) -> Iterator[str]:
    """Yield a warning for each ranker that ranks test queries by what people chose for them."""
    from kinrank.study.comparison import n_with_choices

    for name, ranker in rankers.items():
        known = n_with_choices(ranker, queries)
        if known:
            yield (
                f"{name} ranks {known:,} of {len(queries):,} test queries by what people chose for them; if the grades "
                "are from the same clicks, it is measured by what it remembers: take grades of later days, or measure "
                "choices with --evidence of kinrank compare"
            )


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
