"""Splits into training and test queries: by family and group, checked for leaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinrank.data.queryset import QuerySet
from kinrank.data.split import connected, fold_of_query, fold_queries, groups_of
from kinrank.data.texts import TEXT, VECTORS
from kinrank.errors import DataError, ParameterError
from kinrank.kin.families import families_of
from kinrank.kin.letters import FAMILY, QueryIndex
from kinrank.registry import check_choice
from kinrank.study._leaks import LeakReport, find_leaks

# --- near-duplicates of queries: found by their texts, kept together in folds and tests, and told apart in results ----


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
    """Add the column `COLUMN` to sets of queries: their families, connected by their groups.

    Families are those of `kinrank.kin.families`: by texts and, if all sets have them, by vectors.

    `families` is True, a similarity of texts, False for none, or None: if there are texts, and as many families as
    folds. The last of the parts is tested.

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
    has_vectors = all(VECTORS in part.query_columns for part in parts)
    vectors = np.concatenate([part.query_columns[VECTORS] for part in parts]) if has_vectors else None
    columns = [families_of(np.concatenate([part.query_columns[TEXT] for part in parts]), vectors, similarity)]
    if group is not None:
        columns.append(np.concatenate([groups_of(part, group) for part in parts]))
    values = np.split(connected(*columns), np.cumsum([len(part) for part in parts])[:-1])
    sizes = np.unique(values[-1], return_counts=True)[1]
    n_families, n_queries = len(sizes), len(parts[-1])
    alike = f"similar texts (similarity above {similarity:g})" + (" or vectors" if has_vectors else "")
    alike += "" if group is None else f" or the same {group}"
    of = f"{n_queries:,} queries are of {n_families:,} families of {alike}, the largest of {sizes.max(initial=0):,}"
    if families is None and n_families < max(2, n_folds):
        return Related(parts, None, f"{of}, too few to keep them together")
    joined = [
        part.replace(query_columns={**part.query_columns, COLUMN: value})
        for part, value in zip(parts, values, strict=True)
    ]
    return Related(joined, similarity, f"{of}")


def has_near(test: QuerySet, train: QuerySet, similarity: float = FAMILY) -> NDArray[np.bool_]:
    """Return which test queries have a near training query: one whose text has more than this similarity."""
    texts = [str(text) for part in (train, test) for text in part.query_columns[TEXT]]
    # The n-grams of all texts are weighed together, as for families: these have no near query in another family.
    index = QueryIndex().fit(texts)
    known, asked = index.of(texts[: len(train)]), index.describe(texts[len(train) :])
    near: NDArray[np.bool_] = known.nearest(asked, 1)[1][:, 0] > similarity
    return near


# --- splits into training and test queries, checked for leaks ---------------------------------------------------------


OnLeak = Literal["refuse", "drop", "warn"]


@dataclass(frozen=True, eq=False)
class Fold:
    """Training and test queries, and the leaks between them."""

    train: QuerySet
    test: QuerySet
    """No query of `test` was seen in `train`, unless leaks are kept."""
    positions: NDArray[np.int64]
    """Positions of the test queries in the original set."""
    near: NDArray[np.bool_]
    """Which test queries have a near-duplicate in `train`."""
    leaks: LeakReport
    """The leaks before any query was dropped."""


def checked_folds(
    queries: QuerySet,
    test: QuerySet | None = None,
    *,
    folds: int = 5,
    group: str | None = None,
    together: str | None = None,
    leaks: OnLeak = "refuse",
    seed: int = 0,
) -> Iterator[Fold]:
    """Yield one fold for a given test set, or cross-validation folds.

    `together` is a query column to split by instead of `group`, whose values are never split either.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=20, seed=0)
    >>> [(len(fold.train), len(fold.test)) for fold in checked_folds(camps, folds=4)]
    [(15, 5), (15, 5), (15, 5), (15, 5)]
    """
    check_choice("leaks", leaks, ("refuse", "drop", "warn"))
    if test is not None:
        splits = [(queries, test, np.arange(len(test)))]
    else:
        fold = fold_of_query(queries, folds, group=together or group, seed=seed)
        splits = [(queries[fold != i], queries[fold == i], np.flatnonzero(fold == i)) for i in range(folds)]
    for train, tested, positions in splits:
        report = find_leaks(train, tested, group=group)
        if leaks == "refuse":
            report.raise_if_seen(train, tested, how_to_drop=" with leaks='drop' (--leaks drop on the command line)")
        kept = np.arange(len(tested))
        if leaks == "drop":
            report.raise_if_added()  # the rows to drop are in all folds, and in what the caller pools
            kept = np.delete(kept, report.seen_queries)
        if not len(kept):
            raise DataError("all test queries were seen in training: no query is left to test on")
        near = np.isin(kept, report.near_queries)
        yield Fold(train, tested if len(kept) == len(tested) else tested[kept], positions[kept], near, report)


def inner_folds(train: QuerySet, *, group: str | None = None, seed: int = 0) -> Iterator[tuple[QuerySet, QuerySet]]:
    """Split training queries into folds to choose settings on: five, or as many as the groups allow.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> [len(held_out) for _, held_out in inner_folds(make_two_camps(n_queries=20, seed=0))]
    [4, 4, 4, 4, 4]
    """
    n_groups = len(np.unique(groups_of(train, group)))
    if n_groups < 2:
        raise DataError(
            f"cannot choose settings on folds of the training queries by {group or 'query'}: {len(train)} queries in "
            f"{n_groups} group cannot be split in two; use a finer group or fewer test queries"
        )
    return fold_queries(train, min(5, n_groups), group=group, seed=seed)
