"""Write a folder of evidence from a stream of cells, which need not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank import folder
from kinrank.data.evidence import CELLS, KIND, NAMES, TYPES, Evidence
from kinrank.data.evidence_days import first_and_last, joined_days
from kinrank.data.evidence_ids import write_ids
from kinrank.data.folder_format import GrowingArray
from kinrank.data.text_table import NO_TEXTS, TextTable
from kinrank.data.textfile import PathLike


def write_sorted_cells(
    path: PathLike,
    batches: Iterable[Sequence[NDArray[Any]]],
    meta: dict[str, Any],
    ids: Callable[[], TextTable] = lambda: NO_TEXTS,
) -> Evidence:
    """Write a folder from a stream of cells, and open it.

    Parameters
    ----------
    path
        The folder. An existing folder of evidence is replaced; anything else raises.
    batches
        The arrays query (hashes), document (hashes), day, looks and choices of each batch, sorted by the first three
        over all batches. Equal cells must be adjacent in one batch or at the borders of two; they add up. None is of
        too few clients.
    meta
        What to say about the source.
    ids
        Returns the ids of documents by their hashes, once all batches are read.
    """
    days: tuple[int, int] | None = None
    previous: np.uint64 | None = None
    with folder.atomic_folder(path, KIND) as staging:
        with ExitStack() as stack:
            files = {name: stack.enter_context(GrowingArray(staging, name)) for name in NAMES}
            for name, file in files.items():
                file.append(np.empty(0, dtype=TYPES[name]))
            for query, *cells in _summed(batches):
                new = np.flatnonzero(np.r_[query[0] != previous, query[1:] != query[:-1]])
                previous = query[-1]
                files["query"].append(query[new])
                files["offsets"].append(new + files["day"].length)
                for name, values in zip(CELLS, (*cells, np.zeros(len(query))), strict=True):
                    files[name].append(values.astype(TYPES[name]))
                days = joined_days(days, first_and_last(cells[1]))
            files["offsets"].append(np.array([files["day"].length]))
        folder.write_manifest(staging, KIND, meta | {"days": days}, [*NAMES, *write_ids(staging, ids())])
    return Evidence.open(path)


def _summed(batches: Iterable[Sequence[NDArray[Any]]]) -> Iterator[list[NDArray[Any]]]:
    """Yield batches of sorted cells with equal ones added up; the last cell waits for the next batch."""
    waiting: list[NDArray[Any]] | None = None
    for batch in batches:
        if not len(batch[0]):
            continue
        joined = list(batch)
        if waiting is not None and all(a[0] == b[0] for a, b in zip(waiting[:3], batch[:3], strict=True)):
            joined = [np.r_[a, b] for a, b in zip(waiting, batch, strict=True)]
        elif waiting is not None:
            yield waiting
        same = np.all([part[1:] == part[:-1] for part in joined[:3]], axis=0)
        if same.any():
            starts = np.flatnonzero(np.r_[True, ~same])
            joined = [part[starts] for part in joined[:3]] + [np.add.reduceat(part, starts) for part in joined[3:]]
        waiting = [part[-1:] for part in joined]
        if len(joined[0]) > 1:
            yield [part[:-1] for part in joined]
    if waiting is not None:
        yield waiting
