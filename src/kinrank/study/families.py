"""Near-duplicates of queries: found by their texts, kept together in folds and tests, and told apart in results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinrank.data.queryset import QuerySet
from kinrank.data.split import connected, groups_of
from kinrank.data.texts import TEXT
from kinrank.errors import ParameterError
from kinrank.memory.kin import FAMILY, QueryIndex, families_of

COLUMN = "text_family"
"""The query column with the family of each query; queries of a group are in one family."""

Families = float | bool | None
"""Similarity above which texts are of one family, or whether to use families: None leaves that to the study."""


def wanted_families(families: Families, queries: QuerySet, remember: Iterable[bool]) -> Families:
    """Return False for None unless an entrant remembers judgments or choices, which needs texts and document ids."""
    if families is not None:
        return families
    possible = TEXT in queries.query_columns and queries.doc_id is not None
    return None if possible and any(remember) else False


class Related(NamedTuple):
    """Queries with the column `COLUMN`, if families are used."""

    parts: list[QuerySet]
    similarity: float | None
    """Similarity of texts above which queries are of one family; None if families are not used."""
    note: str
    """How many families there are, or why they are not used; an empty text if they are not looked for."""


def add_families(parts: list[QuerySet], families: Families, group: str | None = None, n_folds: int = 2) -> Related:
    """Add the column `COLUMN` to sets of queries: the families of all their texts, connected by their groups.

    Parameters
    ----------
    parts
        The queries; the last set is tested.
    families
        True, or the similarity above which texts are of one family; False: no families; None: if there are texts, and
        as many families as folds.
    group
        Query column: queries of a group are of one family.
    n_folds
        Number of folds that the families are needed for.

    Examples
    --------
    >>> columns = {"text": ["frozen cast", "heat", "frozen cast 2", "jaws"], "shop": ["a", "b", "c", "b"]}
    >>> queries = QuerySet.from_arrays(np.zeros((4, 1)), qid=np.arange(4), query_columns=columns)
    >>> related = add_families([queries], True, "shop")
    >>> related.parts[0].query_columns[COLUMN].tolist(), related.similarity
    ([0, 1, 0, 1], 0.6)
    """
    has_texts = all(TEXT in part.query_columns for part in parts)
    if families is False or (families is None and not has_texts):
        return Related(parts, None, "")
    if not has_texts:
        raise ParameterError("families need the texts of queries: name their column with --text, or text in Python")
    similarity = FAMILY if families is None or families is True else float(families)
    if not 0 < similarity < 1:
        raise ParameterError(f"families must be a similarity between 0 and 1, got {families!r}")
    columns = [families_of(np.concatenate([part.query_columns[TEXT] for part in parts]), similarity)]
    if group is not None:
        columns.append(np.concatenate([groups_of(part, group) for part in parts]))
    values = np.split(connected(*columns), np.cumsum([len(part) for part in parts])[:-1])
    n_families, n_queries = len(np.unique(values[-1])), len(parts[-1])
    alike = f"similar texts (similarity above {similarity:g})" + ("" if group is None else f" or the same {group}")
    of = f"{n_queries:,} queries are of {n_families:,} families of {alike}"
    if families is None and n_families < max(2, n_folds):
        return Related(parts, None, f"{of}, too few to keep them together")
    joined = [
        part.replace(query_columns={**part.query_columns, COLUMN: value})
        for part, value in zip(parts, values, strict=True)
    ]
    return Related(joined, similarity, f"{of}")


def has_near(test: QuerySet, train: QuerySet, similarity: float = FAMILY) -> NDArray[np.bool_]:
    """Return which test queries have a near training query: one whose text has more than this similarity.

    Examples
    --------
    >>> texts = {"text": ["toy story 2", "heat", "toy story"]}
    >>> queries = QuerySet.from_arrays(np.zeros((3, 1)), qid=[1, 2, 3], query_columns=texts)
    >>> has_near(queries[:2], queries[2:]).tolist()
    [True, False]
    """
    texts = [str(text) for part in (train, test) for text in part.query_columns[TEXT]]
    # The n-grams of all texts are weighed together, as for families: these have no near query in another family.
    index = QueryIndex().fit(texts)
    known, asked = (index.terms_.take(places) for places in np.split(np.arange(len(texts)), [len(train)]))
    near: NDArray[np.bool_] = index.of_others(known).nearest(asked, 1)[1][:, 0] > similarity
    return near
