"""Do weights per query in hybrid search help if the searches are good? BM25 from weak to strong, and 2 to 17 searches.

No engine is needed: the scores are columns of the prepared collections. MSRD (the fixed test queries, by movie), mwmbl
and icecat pair each of their BM25 scores, over one field or over all, with the cosine of MiniLM, and then take all BM25
scores together. acordar2 has the scores of 17 searches, of which the first are BM25 and ColBERT; NaN is a document that
a search did not return. ``kinrank hybrid`` measures each of them in five folds: the best search alone, the best global
weights, the control (one set of weights by the learner of the weights per query), and the gains of weights per query
over both, with p by movie on MSRD. Queries are described by MiniLM, those of acordar2 by n-grams. Queries of the same
text are dropped from the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.common import collections, judged_text, log_progress, msrd
from benchmarks.encoders import msrd_texts
from kinrank import QuerySet
from kinrank.measure import PairedComparison
from kinrank.study.hybrid import BEST, LEARNED, PER_QUERY, Hybrid, hybrid
from kinrank.study.hybrid_plan import HybridPlan
from reproduction.data_folder import query_set

COLLECTIONS = ("mwmbl", "msrd", "icecat", "acordar2")
OPTIONS = {"only": ("all", *COLLECTIONS)}
COSINE = "cosine"
FIRST = ("BM25", "ColBERT", "LMD", "DPR", "FSDM", "TFIDF")
"""The searches over whole documents of acordar2, in the order in which they are added."""


def run(only: str = "all") -> dict[str, Any]:
    """Measure every set of searches of every collection."""
    return {name: measured(name) for name in (COLLECTIONS if only == "all" else (only,))}


def measured(name: str) -> dict[str, Any]:
    """Measure every set of searches of a collection."""
    queries = read(name)
    plan = HybridPlan(group="movie" if name == "msrd" else None)
    rows: dict[str, Any] = {"queries": len(queries)}
    for searches in sets_of(queries.feature_names):
        columns = [queries.feature_names.index(search) for search in searches]
        some = queries.replace(X=queries.X[:, columns], feature_names=searches)
        label = " + ".join(searches) if len(searches) <= 3 else f"{len(searches)} searches"
        rows[label] = figures(hybrid(some, plan=plan, leaks="drop"))
        log_progress(f"{name}, {label}: {rows[label]}")
    return rows


def read(name: str) -> QuerySet:
    """Return the judged queries of a collection, with texts, and with vectors except for acordar2."""
    if name == "msrd":
        queries = msrd()["test"]
        texts = msrd_texts()
        text = np.array([texts[qid] for qid in queries.qid.tolist()])
        return queries.replace(query_columns={**queries.query_columns, "text": text})
    if name != "acordar2":
        return judged_text(name)[0]
    stored = np.load(collections().path / "text" / "acordar2" / "scores17.npz")
    return query_set(stored, {"text": stored["query"]})


def sets_of(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the sets of searches to combine."""
    if COSINE in names:
        lexical = tuple(name for name in names if name.startswith("bm25_"))
        yield from ((each, COSINE) for each in lexical)
        yield (*lexical, COSINE)
    else:
        yield from (FIRST[:n] for n in (2, 3, 4, 6))
        yield (*FIRST, *(name for name in names if name not in FIRST))


def figures(found: Hybrid) -> dict[str, Any]:
    """Return the quality of what is compared, and the gains of weights per query."""
    alone = found.best_alone
    compared = {"best search alone": alone.name, BEST: BEST, LEARNED: LEARNED}
    return {
        "best search": alone.name,
        **{label: round(found.comparison[name].evaluation[found.measure], 4) for label, name in compared.items()},
        "tested": len(found.comparison.queries),
        "one search is enough": found.one_search_is_enough,
        **{
            PER_QUERY[basis]: {
                "over the best global weights": difference(found.claim(basis).paired),
                "over the control": difference(found.over_learned[basis]),
            }
            for basis in found.per_query
        },
    }


def difference(paired: PairedComparison) -> dict[str, Any]:
    """Return a gain with its interval and p."""
    return {
        "gain": round(paired.mean_difference, 4),
        "95%": [round(end, 4) for end in paired.interval],
        "p": float(f"{paired.p:.2g}"),
    }
