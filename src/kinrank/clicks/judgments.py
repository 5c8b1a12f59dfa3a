"""Write judgments made from clicks: grades, and what they are based on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from kinrank.clicks.counts import ClickCounts
from kinrank.clicks.posterior import Attractiveness
from kinrank.data.textfile import PathLike, atomic_writer
from kinrank.errors import DataError, ParameterError

THRESHOLDS = (1.25, 1.75, 2.5)
"""Clicks over looks, relative to the mean over documents, at which the grade increases."""


def judgment_table(
    counts: ClickCounts, found: Attractiveness, thresholds: Sequence[float] = THRESHOLDS, min_impressions: int = 1
) -> pa.Table:
    """Return one row per query and document that `kinrank log` reads as a judgment.

    Queries that too few clients asked are left out: their texts would go from here into models, and people would see
    what one person asked.

    Parameters
    ----------
    counts
        The counts of a log.
    found
        The attractiveness of its documents.
    thresholds
        The grade is the number of thresholds that clicks over looks reach, relative to the mean over documents. Grades
        are not pulled to the mean if there are few looks: the weight alone says how little is known then.
    min_impressions
        Documents with fewer impressions are left out.

    Returns
    -------
    pyarrow.Table
        qid, query, doc_id, y (the grade), sample_weight, and the columns of details: info.rate (clicks over looks),
        info.attractiveness (pulled to the mean) with its 90% interval info.low to info.high, info.impressions,
        info.clicks.
    """
    cuts = np.asarray(thresholds, dtype=np.float64)
    if not len(cuts) or np.any(cuts <= 0) or np.any(np.diff(cuts) <= 0):
        raise ParameterError(f"thresholds must be positive and ascend, got {list(thresholds)}")
    impressions = counts.by_pair(counts.impressions)
    relative = found.rate / found.prior_mean
    query = counts.query.cast(pa.string())
    table = pa.table(
        {
            "qid": query,
            "query": query,
            "doc_id": counts.document.cast(pa.string()),
            "y": pa.array(np.searchsorted(cuts, relative, side="right").astype(np.float32)),
            "sample_weight": pa.array(found.weight.astype(np.float32)),
            "info.rate": pa.array(found.rate),
            "info.attractiveness": pa.array(found.mean),
            "info.low": pa.array(found.low),
            "info.high": pa.array(found.high),
            "info.impressions": pa.array(impressions.astype(np.int64)),
            "info.clicks": pa.array(counts.by_pair(counts.clicks).astype(np.int64)),
        }
    )
    kept = (impressions >= min_impressions) & (found.weight > 0)
    if not kept.any():
        raise DataError(f"no document has {min_impressions} impressions at a known rank: lower min_impressions")
    if counts.few is not None:
        kept &= ~counts.few
        left_out = len(np.unique(counts.query_codes[counts.few]))
        if left_out:
            counts.funnel.notes.append(f"{left_out:,} queries of too few clients are not judged (--min-clients)")
    table = table.filter(pa.array(kept))
    if not len(table):
        raise DataError("no query was asked by enough clients to be judged: lower min_clients, or pass a longer log")
    return table


def write_judgments(table: pa.Table, path: PathLike) -> None:
    """Write a table of judgments as .parquet or .csv."""
    name = str(path)
    with atomic_writer(path) as stream:
        if name.endswith(".parquet"):
            pq.write_table(table, stream, compression="zstd")
        elif name.endswith(".csv"):
            pacsv.write_csv(table, stream)
        else:
            raise ParameterError(f"{name}: write judgments as NAME.parquet or NAME.csv")


def grade_counts(table: pa.Table) -> dict[int, int]:
    """Return the number of documents with each grade."""
    counted = pc.value_counts(table["y"])
    return {
        int(row["values"]): int(row["counts"]) for row in sorted(counted.to_pylist(), key=lambda row: row["values"])
    }
