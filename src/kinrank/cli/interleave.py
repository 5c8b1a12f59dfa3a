"""``kinrank clicks --interleaved``: decide between two models by the clicks on their interleaved lists."""

from __future__ import annotations

from kinrank.cli import console


def print_contest(events: list[str], alpha: float) -> None:
    """Print which of two interleaved models users prefer."""
    from rich.table import Table

    from kinrank.clicks.interleaving import read_contest

    with console.progress("reading"):
        contest = read_contest(events, alpha)
    table = Table("model", "wins", "share", "always-valid interval", box=None, pad_edge=False)
    table.add_row(
        contest.first, f"{contest.wins:,}", f"{contest.share:.3f}", f"{contest.low:.3f} to {contest.high:.3f}"
    )
    table.add_row(
        contest.second,
        f"{contest.losses:,}",
        f"{1 - contest.share:.3f}",
        f"{1 - contest.high:.3f} to {1 - contest.low:.3f}",
    )
    table.add_row("(tied)", f"{contest.ties:,}")
    console.print_result(table)
    console.info(contest.verdict)
