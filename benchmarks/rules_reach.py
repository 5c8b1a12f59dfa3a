"""How far a rule may reach: precision of "queries like it", the near-duplicates of its text.

On GOV.UK (queries with the pages that editors want for them) and MSRD (queries with their best judged documents). A
pair of different texts is right if they want a page or document in common. For comparison, pairs by the cosine of their
n-grams from a level on, for some queries. Labels are noisy: *driving license photo* and *photo driving license* want
different pages.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.common import data_dir, log_progress, msrd
from benchmarks.encoders import msrd_texts
from kinrank.data.texts import normalize_text
from kinrank.describe.encoders.ngrams import fold, ngrams_of
from kinrank.serve._rules import _SimilarTexts

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
ASKED = 300
"""Queries of a collection that are compared with all others by n-grams."""

Wanted = dict[str, set[str]]


def govuk() -> Wanted:
    """Return the pages that are wanted for each query."""
    wanted: Wanted = {}
    with (data_dir() / "real" / "govuk" / "search_check_results.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["Position wanted"].startswith("<="):
                wanted.setdefault(normalize_text(row["Search Term"]), set()).add(row["Page"])
    return wanted


def movies() -> Wanted:
    """Return the documents with the best grade of each query."""
    wanted: Wanted = {}
    texts = msrd_texts()
    for part in msrd().values():
        for query in part:
            best = query.doc_id[query.grades == max(query.grades.max(), 1)]
            wanted.setdefault(normalize_text(texts[str(query.qid[0])]), set()).update(best.astype(np.str_).tolist())
    return {text: documents for text, documents in wanted.items() if documents}


def precision(pairs: Iterable[tuple[str, str]], wanted: Wanted) -> dict[str, float]:
    """Return the number of pairs, and the share of those that want something in common."""
    right = [bool(wanted[one] & wanted[other]) for one, other in pairs]
    return {"pairs": len(right), "precision": float(np.mean(right)) if right else float("nan")}


def near_duplicates(texts: list[str]) -> set[tuple[str, str]]:
    """Return the pairs that a rule for queries like it reaches."""
    index = _SimilarTexts(texts)
    return {(text, texts[place]) for text in texts for place in index.like(text) if text < texts[place]}


def by_ngrams(texts: list[str], level: float) -> set[tuple[str, str]]:
    """Return the pairs from a cosine of n-grams on, for `ASKED` queries."""
    grams = [set(ngrams_of(fold(text))) for text in texts]
    found = set()
    for asked in np.random.default_rng(0).permutation(len(texts))[:ASKED].tolist():
        for place, others in enumerate(grams):
            shared = len(grams[asked] & others)
            if place != asked and shared >= level * (len(grams[asked]) * len(others)) ** 0.5:
                found.add((texts[asked], texts[place]))
    return found


def run() -> dict[str, Any]:
    """Measure precision on both collections."""
    figures: dict[str, Any] = {}
    for name, wanted in (("govuk", govuk()), ("msrd", movies())):
        texts = list(wanted)
        figures[name] = {"near-duplicates": precision(near_duplicates(texts), wanted)}
        for level in LEVELS:
            figures[name][f"n-grams {level:g}"] = precision(by_ngrams(texts, level), wanted)
        log_progress(f"{name}: {figures[name]}")
    return figures
