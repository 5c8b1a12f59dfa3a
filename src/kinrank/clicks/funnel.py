"""What was read from a log and what was dropped, by reason."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Funnel:
    """Counts of the rows of a log at each stage.

    Examples
    --------
    >>> funnel = Funnel()
    >>> funnel.count("queries", {None: 8, "no text": 2})
    >>> funnel.kept("queries"), funnel.dropped
    (8, {('queries', 'no text'): 2})
    """

    read: dict[str, int] = field(default_factory=dict)
    """Rows read by stage: "queries", "events", "impressions"."""
    dropped: dict[tuple[str, str], int] = field(default_factory=dict)
    """Rows dropped by stage and reason."""
    columns: list[str] = field(default_factory=list)
    """Sentences about columns that the log lacks, or that were found by their names; they are said first."""
    notes: list[str] = field(default_factory=list)
    """Sentences about choices that were made for this log."""

    def count(self, stage: str, by_reason: dict[str | None, int]) -> None:
        """Add the rows of a stage; the reason None is for those that were kept."""
        self.read[stage] = self.read.get(stage, 0) + sum(by_reason.values())
        for reason, rows in by_reason.items():
            if reason is not None:
                self.drop(stage, reason, rows)

    def drop(self, stage: str, reason: str, rows: int) -> None:
        """Count rows of a stage as dropped."""
        if rows:
            self.dropped[stage, reason] = self.dropped.get((stage, reason), 0) + rows

    def kept(self, stage: str) -> int:
        """Return the number of rows of a stage that were used."""
        return self.read.get(stage, 0) - sum(rows for (of, _), rows in self.dropped.items() if of == stage)

    def add(self, other: Funnel) -> None:
        """Add the counts of another log, and what it says about columns."""
        for stage, rows in other.read.items():
            self.read[stage] = self.read.get(stage, 0) + rows
        for (stage, reason), rows in other.dropped.items():
            self.drop(stage, reason, rows)
        self.columns += [each for each in other.columns if each not in self.columns]
