"""Choices on real click logs: the likelihood of later clicks, and the agreement with human grades.

Neither log has features, so that the wrapped ranker is the search engine's own order: the mean rank of a document.

- ``yandex-sample``: 40 frequent queries. Learned from the first four fifths of each query's lists, asked for the clicks
  of the last fifth. Perplexity of a click or none at each rank, 1 is perfect: of the posterior, of the query's own
  clicks with and without correction for examination, and of the click rates of ranks.
- ``trec-session-clicks``: lists of the TREC Session track, most queries with one or two lists. The share of pairs of
  documents with different human grades that each order ranks alike; ties count half.
"""

from __future__ import annotations

import ast
import gzip
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.choices_traffic import read_clicks
from benchmarks.common import data_dir, log_progress
from kinrank import QuerySet
from kinrank.clicks.examination import Examination, estimate_examination
from kinrank.clicks.judgments import estimate_attractiveness
from kinrank.rankers.kin._chosen import WithChoices

DAYS = 100
_START = 1_790_000_000 // 86_400 * 86_400


class EngineOrder:
    """A model that keeps the order of the search engine."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the first feature."""
        return X[:, 0].astype(np.float64)


def yandex() -> pa.Table:
    """Return the impressions of both samples; the day of a list is its place among the lists of its query."""
    rows: list[tuple[str, int, str, int, bool, int]] = []
    session = 0
    for name in ("trainSample.gz", "testSample.gz"):
        with gzip.open(data_dir() / "clicks" / "yandex-sample" / name, "rt") as lines:
            for line in lines:
                lists = [part.strip() for part in line.split(";") if "\t" in part]
                for place, part in enumerate(lists):
                    query, _, rest = part.partition("\t")
                    shown, _, clicked = rest.partition(":")
                    chosen = {document.strip() for document in clicked.split(",")}
                    for rank, document in enumerate(shown.split(","), start=1):
                        day = place * DAYS // len(lists)
                        rows.append((query, session, document.strip(), rank, document.strip() in chosen, day))
                    session += 1
    return _table(rows)


def trec() -> tuple[pa.Table, dict[tuple[str, str], float]]:
    """Return the impressions of all lists, and the human grades by query and document."""
    folder = data_dir() / "clicks" / "trec-session-clicks"
    rows: list[tuple[str, int, str, int, bool, int]] = []
    grades: dict[tuple[str, str], float] = {}
    names = ["train", "valid", "test", "human_label_for_GraphCM"]
    lines = [line for name in names for line in (folder / f"{name}_per_query_quid.txt").read_text().splitlines()]
    for session, line in enumerate(lines):
        _, query, documents, _, clicks, *human = line.split("\t")
        shown = [str(document) for document in ast.literal_eval(documents)]
        for rank, (document, clicked) in enumerate(zip(shown, ast.literal_eval(clicks), strict=True), start=1):
            rows.append((query, session, document, rank, bool(clicked), session * DAYS // len(lines)))
        for document, grade in zip(shown, ast.literal_eval(human[0]) if human else (), strict=bool(human)):
            grades[query, document] = float(grade)
    return _table(rows), grades


def _table(rows: list[tuple[str, int, str, int, bool, int]]) -> pa.Table:
    names = ("query", "session", "document", "rank", "clicked", "day")
    table = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    seconds = pa.array(_START + 86_400 * table["day"].to_numpy()).cast(pa.timestamp("s", tz="UTC"))
    return table.append_column("time", seconds)


def orders(table: pa.Table, model: str) -> tuple[list[tuple[str, str]], dict[str, np.ndarray], Examination]:
    """Return the documents of each query, their estimated rates of choices by method, and the examination."""
    counts, examination, evidence = read_clicks(table, model)
    keys = list(zip(counts.query.to_pylist(), counts.document.to_pylist(), strict=True))
    shown = counts.by_pair(counts.impressions)
    rank = counts.by_pair(counts.rank * counts.impressions) / shown
    clicked = counts.by_pair(counts.clicks)
    queries = QuerySet.from_arrays(
        -rank[:, None],
        clicked,
        qid=[query for query, _ in keys],
        doc_id=[document for _, document in keys],
        query_columns={"text": list(dict.fromkeys(query for query, _ in keys))},
    )
    ranker = WithChoices(EngineOrder(), evidence).fit(queries)
    log_progress(f"settings: {ranker.chosen_}")
    plain = estimate_attractiveness(counts, estimate_examination(counts, "none"))
    rates = {
        "posterior": queries.in_caller_order(ranker.predict(queries)),
        "own clicks, corrected": estimate_attractiveness(counts, examination).mean,
        "own clicks": plain.mean,
        "engine": -rank,
    }
    return keys, rates, examination


def later_clicks() -> dict[str, Any]:
    """Return the perplexity of the last fifth of the lists of each query."""
    table = yandex()
    early, late = (table.filter(part) for part in _fifths(table))
    keys, rates, examination = orders(early, "swaps")
    place = {key: number for number, key in enumerate(keys)}
    pairs = zip(late["query"].to_pylist(), late["document"].to_pylist(), strict=True)
    row = np.array([place.get(key, -1) for key in pairs])
    rank, clicked = late["rank"].to_numpy(), late["clicked"].to_numpy(zero_copy_only=False)
    slope, _ = examination.at(rank)
    known = (row >= 0) & (slope > 0)
    ranks, early_clicked = early["rank"].to_numpy(), early["clicked"].to_numpy(zero_copy_only=False)
    by_rank = np.bincount(ranks, early_clicked) / np.maximum(np.bincount(ranks), 1)
    predicted = {name: slope * rates[name][row] for name in ("posterior", "own clicks, corrected")}
    predicted |= {"own clicks": rates["own clicks"][row], "click rate of the rank": by_rank[rank]}
    figures = {}
    for name, values in predicted.items():
        p = np.clip(values[known], 1e-6, 1 - 1e-6)
        loss = np.where(clicked[known], np.log2(p), np.log2(1 - p))
        figures[name] = round(float(2 ** -loss.mean()), 4)
    return {"impressions": int(known.sum()), "perplexity": figures}


def _fifths(table: pa.Table) -> tuple[pa.Array, pa.Array]:
    late = pc.greater_equal(table["day"], 4 * DAYS // 5)
    return pc.invert(late), late


def agreement() -> dict[str, Any]:
    """Return the share of pairs in the order of human grades."""
    table, grades = trec()
    keys, rates, _ = orders(table, "none")
    by_query: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        if key in grades:
            by_query.setdefault(key[0], []).append(row)
    right, pairs = dict.fromkeys(rates, 0.0), 0
    for rows in by_query.values():
        grade = np.array([grades[keys[row]] for row in rows])
        better = grade[:, None] > grade
        pairs += int(better.sum())
        for name, values in rates.items():
            difference = values[rows][:, None] - values[rows]
            right[name] += float((better * ((difference > 0) + 0.5 * (difference == 0))).sum())
    return {"queries": len(by_query), "pairs": pairs, "agree": {n: round(r / pairs, 4) for n, r in right.items()}}


def run() -> dict[str, Any]:
    """Measure both logs."""
    return {"yandex-sample": later_clicks(), "trec-session-clicks": agreement()}
