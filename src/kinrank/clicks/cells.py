"""Collect the counts of a log from a stream of cells, without holding the texts of all cells in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kinrank.arrays import Int64
from kinrank.clicks.counts import DAYS, ClickCounts
from kinrank.clicks.funnel import Funnel
from kinrank.errors import DataError

_KEYS = ["code", "document"]


def collect_cells(
    batches: Iterable[pa.RecordBatch], texts: pa.Array, funnel: Funnel, few: NDArray[np.bool_] | None = None
) -> ClickCounts:
    """Build counts from a stream of cells.

    Parameters
    ----------
    batches
        Columns code (of the query), document, rank, reason, impressions and clicks, both also for even and odd days,
        and optionally reward and examined. Rows without a code come first: the impressions that were dropped for a
        reason. The others are sorted by code, document and rank.
    texts
        The text of each query by its code.
    funnel
        Receives the numbers of impressions that were read and dropped.
    few
        Whether too few clients asked each query, by its code.
    """
    dropped: dict[str | None, int] = {}
    columns: dict[str, list[NDArray[Any]]] = {}
    pairs: list[pa.RecordBatch] = []
    starts: list[Int64] = []
    last: pa.RecordBatch | None = None
    n_cells = 0
    for batch in batches:
        unused = batch.slice(0, batch["code"].null_count)
        for reason, rows in zip(unused["reason"].to_pylist(), unused["impressions"].to_pylist(), strict=True):
            dropped[reason] = dropped.get(reason, 0) + rows
        batch = batch.slice(len(unused))
        if not len(batch):
            continue
        keys = batch.select(_KEYS)
        new = _first_cells(keys, last)
        pairs.append(keys.take(pa.array(new)))
        starts.append(new + n_cells)
        for name in set(batch.schema.names) - {*_KEYS, "reason"}:
            columns.setdefault(name, []).append(batch[name].to_numpy().copy())  # a view would keep the whole batch
        n_cells += len(batch)
        last = keys.slice(len(keys) - 1)
    numbers: dict[str, NDArray[Any]] = {name: np.concatenate(columns.pop(name)) for name in list(columns)}
    funnel.count("impressions", {None: int(numbers["impressions"].sum()) if pairs else 0, **dropped})
    if not pairs:
        reasons = ", ".join(f"{rows:,} {stage}: {why}" for (stage, why), rows in funnel.dropped.items())
        raise DataError(f"no impression is left of this log ({reasons or 'it is empty'}): check the options")
    named = pa.Table.from_batches(pairs).combine_chunks()
    return ClickCounts(
        query=pa.DictionaryArray.from_arrays(named["code"].combine_chunks(), texts),
        document=named["document"].combine_chunks(),
        offsets=np.concatenate([*starts, [n_cells]]),
        rank=numbers["rank"],
        impressions=numbers["impressions"],
        clicks=numbers["clicks"],
        reward=numbers.get("reward", numbers["clicks"]),
        examined=numbers.get("examined", numbers["impressions"]),
        days={day: (numbers[f"{day}_impressions"], numbers[f"{day}_clicks"]) for day in DAYS},
        funnel=funnel,
        few=None if few is None else few[named["code"].to_numpy()],
    )


def _first_cells(keys: pa.RecordBatch, last: pa.RecordBatch | None) -> Int64:
    """Return the rows that start another pair than the row before; `last` is the pair of the batch before."""
    changed = [
        pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(zero_copy_only=False)
        for column in keys.columns
    ]
    continued = last is not None and keys.slice(0, 1).equals(last)
    return np.flatnonzero(np.r_[not continued, changed[0] | changed[1]])
