"""Stored judgments as judged queries for training, and the log files of earlier versions."""

from __future__ import annotations

import os
import zlib
from functools import reduce
from pathlib import Path

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, FileFormatError
from kinrank.serve.judgment_store import JudgmentRow, JudgmentStore
from kinrank.serve.live_judgments import Entry, merge_records
from kinrank.serve.messages import to_query_set


def exported_queries(store: JudgmentStore, model: str) -> tuple[QuerySet, int]:
    """Return the judgments of a model as judged queries, and the revision that they are at.

    Queries whose features, vectors, texts or columns differ from those of the latest one are left out.
    """
    latest: dict[str, Entry] = {}
    revision = 0
    for changes in store.pages(model):
        for query, rows in changes.queries.items():
            latest.pop(query, None)
            records = [row.record for row in rows if row.record is not None]
            if records:
                latest[query] = Entry.parse(reduce(merge_records, records))
        revision = changes.through
    if not latest:
        raise DataError(f"there are no judgments of {model!r}: name another model with --model")
    judged = [entry.judged for entry in latest.values()]
    last = judged[-1].candidates
    alike = [
        query
        for query in judged
        if query.candidates.feature_names == last.feature_names and query.candidates.batch_key == last.batch_key
    ]
    candidates = [query.candidates for query in alike]
    queries = to_query_set(candidates, [each.features for each in candidates], last.feature_names or ())
    return (
        queries.replace(
            y=np.concatenate([np.array(query.grades, dtype=np.float32) for query in alike]),
            qid=np.array([query.qid for query in alike]),
            doc_id=np.array([doc_id for each in candidates for doc_id in each.ids]),
        ),
        revision,
    )


def read_log(path: str | os.PathLike[str]) -> list[JudgmentRow]:
    """Read the judgment log that earlier versions wrote: lines of a CRC-32, a space and JSON.

    A last line that was cut off is left out: it was never acknowledged.
    """
    rows = []
    for number, line in enumerate(Path(path).read_bytes().split(b"\n")[:-1], start=1):
        text = line[9:]
        if line[:9] != b"%08x " % zlib.crc32(text):
            raise FileFormatError(
                path, number, "this line was damaged: remove it and those after it, or restore the file"
            )
        entry = Entry.parse(text.decode())
        rows.append(JudgmentRow(entry.judged.qid, "", entry.dump()))
    return rows
