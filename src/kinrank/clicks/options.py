"""What to read from a click log and what to leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kinrank.errors import ParameterError

FORMATS = ("auto", "ubi", "metarank", "table")
ATTRIBUTES = ("drop", "apart", "ignore")
SEEN = ("auto", "events", "results")
COLUMNS = ("query", "session", "document", "rank", "clicked", "time", "client", "explored")


@dataclass(frozen=True)
class LogOptions:
    """Options of `read_clicks`."""

    format: str = "auto"
    """"ubi", "metarank" or "table"; "auto" looks at the files."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """For a table: the name of each column of `COLUMNS` that is named differently. The last three are optional."""
    actions: Mapping[str, float] = field(default_factory=lambda: {"click": 1.0})
    """The value of each action that counts as a click, such as ``{"click": 1, "add_to_cart": 3, "purchase": 5}``."""
    seen: str = "auto"
    """What counts as an impression in a UBI log: "events" are the logged impressions, "results" all documents that the
    engine returned; "auto" takes the events if there are any. Returned documents were not always seen.
    """
    attributes: str = "drop"
    """Lists with a filter, a sort order or a page other than the first, according to ``query_attributes``: "drop" them,
    keep them "apart" as queries of their own, or "ignore" the attributes.
    """
    exclude: Mapping[str, str] = field(default_factory=dict)
    """Drop lists whose ``query_attributes`` have one of these values by name, such as lists that your own model ranked.
    """
    first_rank: int | None = None
    """The number of the first rank in the log, 0 or 1; None finds out."""
    max_rank: int = 50
    """Impressions at later ranks are dropped."""
    since: str | None = None
    """Drop queries before this date (ISO 8601); None keeps all."""
    max_queries_per_day: int = 500
    """A client with more lists in one day is a bot."""
    max_click_rate: float = 0.5
    min_impressions: int = 200
    """A client that clicks a larger share of its impressions is a bot, if it has at least this many."""
    min_clients: int = 2
    """Queries of fewer clients are neither judged nor evidence, if the log names its clients: one person is not the
    crowd, and the texts of judged queries go into models.
    """
    early: float = 300.0
    late: float = 86_400.0
    """Drop actions more than `early` seconds before their query or `late` seconds after it: one of the clocks is wrong.
    """
    memory: str = "2GB"
    threads: int | None = None
    """Limits of DuckDB; ``threads=None`` uses all cores."""

    @property
    def plain(self) -> bool:
        """Whether every action counts 1, so that the reward of a document is the number of its clicks."""
        return set(self.actions.values()) == {1}

    def __post_init__(self) -> None:
        for name, choices in (("format", FORMATS), ("attributes", ATTRIBUTES), ("seen", SEEN)):
            if getattr(self, name) not in choices:
                raise ParameterError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        if unknown := set(self.columns) - set(COLUMNS):
            raise ParameterError(f"unknown column {min(unknown)!r}: name the columns of {', '.join(COLUMNS)}")
        if not self.actions or min(self.actions.values()) <= 0:
            raise ParameterError(f"actions need at least one name with a value above 0, got {dict(self.actions)}")
        if self.first_rank not in (None, 0, 1):
            raise ParameterError(f"first_rank must be 0, 1 or None, got {self.first_rank}")
        if self.min_clients < 1:
            raise ParameterError(f"min_clients must be at least 1, got {self.min_clients}")
        if self.max_rank < 1:
            raise ParameterError(f"max_rank must be at least 1, got {self.max_rank}")
