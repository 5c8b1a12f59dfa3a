"""Reading the models and queries that a command names."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kinrank.cli import console
from kinrank.cli.options import OnLeak, table_columns
from kinrank.data.source import Source
from kinrank.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from kinrank.data.queryset import QuerySet
    from kinrank.parallel import Executor
    from kinrank.rankers import Ranker
    from kinrank.study._leaks import AddedRows
    from kinrank.study._traffic import SplitInTime

_EXAMPLES = 5
_FILLED = {
    "mean": "linear models fill in the mean of the feature, trees read them as missing",
    "zero": "linear models fill in 0, trees read them as missing",
    "error": "missing=error refuses them",
}


def load_model(path: str) -> Ranker:
    """Load a model folder with a progress bar."""
    from kinrank.rankers import load

    with console.progress(f"reading {path}"):
        return load(path)


def read_evidence(folder: str | None) -> SplitInTime | None:
    """Open a folder of evidence and split it in time; None without one."""
    from kinrank.memory.evidence import Evidence
    from kinrank.study._traffic import SplitInTime

    return None if folder is None else SplitInTime.of(Evidence.open(folder))


def read_queries(path: str, n_features: int | None = None, model: Ranker | None = None) -> QuerySet:
    """Read queries with a progress bar.

    A LETOR file needs the number of features of the model or of the training data: a feature that no line names is
    0. The keys of the memory of a model are columns of documents.
    """
    columns = table_columns.get()
    if model is not None:
        columns = {**columns, "keys": [*columns["keys"], *keys_of_memory(model)]}
    source = Source(path, n_features, columns)
    with console.progress(f"reading {path}"):
        queries = source.read()
    check_features(queries, path, named=source.format not in ("csv", "parquet") or columns["features"] is not None)
    return queries


def keys_of_memory(ranker: Ranker) -> Sequence[str]:
    """Return the columns of documents that a ranker remembers."""
    keys: Sequence[str] = ranker.get_params(deep=False).get("keys") or ()
    return keys


def check_features(queries: QuerySet, path: str, *, named: bool) -> None:
    """Refuse columns that are no features, unless the user named the features; warn of one that gives grades away."""
    if not named:
        _check_names(queries, path)
    if queries.y is not None:
        _warn_of_giveaway(queries, path)


def check_added_rows(queries: QuerySet, leaks: OnLeak) -> AddedRows | None:
    """Return candidates that look like relevant documents added to the hits of an engine, with a warning.

    Raise `LeakError` if `leaks` says to refuse them.
    """
    from kinrank.study._leaks import find_added_rows

    added_rows = find_added_rows(queries)
    if added_rows is not None:
        if leaks is OnLeak.refuse:
            raise added_rows.error()
        console.warn(str(added_rows))
    return added_rows


def announce(queries: QuerySet, path: str, missing: str = "mean") -> None:
    """Print what was read to learn from: the features by name, how many values are missing, and what fills them."""
    import numpy as np

    from kinrank.data.query_rows import default_names

    names = queries.feature_names
    listed = "" if names == default_names(queries.n_features) else f": {', '.join(names)}"
    console.info(f"{path}: {queries!r}{listed}")
    counts = dict(zip(names, np.isnan(queries.X).sum(axis=0).tolist(), strict=True))
    if any(counts.values()):
        most = sorted((name for name, count in counts.items() if count), key=counts.__getitem__, reverse=True)
        listed = ", ".join(f"{name}: {counts[name]:,}" for name in most[:_EXAMPLES])
        more = f" and {len(most) - _EXAMPLES} other features" if len(most) > _EXAMPLES else ""
        total = f"{sum(counts.values()):,} of {queries.X.size:,}"
        console.info(f"{path}: {total} feature values are missing ({listed}{more}): {_FILLED.get(missing, missing)}")


def warn_if_perfect(means: Mapping[str, float]) -> None:
    """Warn of results that are too good to be believed."""
    for message in perfect_warnings(means):
        console.warn(message)


def perfect_warnings(means: Mapping[str, float]) -> Iterator[str]:
    """Yield a warning about the first result that is too good to be believed."""
    from kinrank.study._leaks import NEAR_PERFECT

    for name, mean in means.items():
        if mean >= NEAR_PERFECT:
            yield (
                f"{name} reaches {mean:.4f}, which is too good to be believed: look for a feature that is made from "
                "the judgments, and leave it out with --columns drop=FEATURE"
            )
            return


def _check_names(queries: QuerySet, path: str) -> None:
    """Refuse columns that would become features although their names say that they are something else."""
    from kinrank.study._table_check import suspect_names

    for name, meaning in suspect_names(queries.feature_names):
        raise DataError(
            f"{path}: column {name!r} looks like {meaning}, but would be a feature: add --columns "
            f"{shlex.quote(f'drop={name}')}, or name all features (--columns 'features=*' takes all numeric columns)"
        )


def _warn_of_giveaway(queries: QuerySet, path: str) -> None:
    from kinrank.study._leaks import find_giveaway

    giveaway = find_giveaway(queries)
    if giveaway is not None:
        console.warn(
            f"{path}: {giveaway}; if it is made from the judgments, add --columns "
            f"{shlex.quote(f'drop={giveaway.feature}')}"
        )


@contextmanager
def chosen_executor(ray: str | None, workers: int | None) -> Iterator[Executor]:
    """Yield what runs the tasks of a command with ``--ray`` or ``--workers``."""
    from kinrank.scale import Processes, RayCluster

    if ray is not None and workers is not None:
        raise ParameterError("--ray and --workers cannot be combined")
    if ray is not None:
        with RayCluster(ray) as cluster:
            yield cluster
    else:
        yield Processes(workers or 1)


def select_queries(queries: QuerySet, wanted: Sequence[str] | None, path: str) -> QuerySet:
    """Return the queries with the given ids or texts in the order of the data; all queries if none is given."""
    import numpy as np

    from kinrank.data.texts import TEXT, normalize_text

    if not wanted:
        return queries
    ids = queries.qid.astype(np.str_)
    texts = np.array([normalize_text(text) for text in queries.query_columns.get(TEXT, ())], np.str_)
    chosen = np.zeros(len(queries), bool)
    for query in wanted:
        found = ids == query
        if not found.any() and len(texts):
            found = texts == normalize_text(query)
        if not found.any():
            known = f"texts look like {_first(texts)}" if len(texts) else f"ids look like {_first(ids)}"
            raise DataError(f"{path}: no query {query!r} among {len(queries):,} queries; {known}")
        chosen |= found
    return queries[np.flatnonzero(chosen)]


def _first(names: NDArray[np.str_]) -> str:
    return ", ".join(map(repr, names[:_EXAMPLES].tolist()))
