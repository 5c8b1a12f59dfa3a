"""Click logs as a source of judgments: readers, models of what users looked at, and grades with their uncertainty.

The way from a log to judgments::

    log files -> counts by query, document and rank -> examination of ranks -> attractiveness of documents -> grades

`read_clicks` does the first step in DuckDB, out of core. The others work on the counts, in memory.
"""

from kinrank.clicks._counts import ClickCounts
from kinrank.clicks.read import LogOptions, read_clicks

__all__ = ["ClickCounts", "LogOptions", "read_clicks"]
