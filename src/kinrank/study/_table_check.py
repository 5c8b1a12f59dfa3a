"""Check a table of one's own: what its columns are, what is wrong with them, and the options that read it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kinrank.data.queryset import QuerySet
from kinrank.data.tables import (
    INFO_PREFIX,
    QUERY_PREFIX,
    TITLE,
    WEIGHT,
    ColumnNames,
    decoded,
    is_number,
    is_text,
    words_of,
)
from kinrank.data.texts import TEXT
from kinrank.errors import DataError
from kinrank.study._leaks import find_added_rows, find_giveaway

_QUERY_IDS = "qid query_id queryid q_id search_id srch_id request_id"
_TEXTS = "text query_text query search search_query search_term search_terms keyword keywords q"
_GRADES = "y grade label relevance judgment rel relevance_label relevance_grade rating gain target"
_DOCUMENTS = "doc_id docid docno document_id document doc product_id product item_id item sku asin url id"
_TITLES = f"{TITLE} title document_title product_title item_title product_name item_name name"
_WEIGHTS = "weight weights importance sample_weights"
_ROW_NUMBERS = "index row row_number rownum row_id unnamed:_0"
_EXAMPLES = 3
_MAX_QUANTITIES = 30
"""Number of different whole numbers above which a column that belongs to the query holds ids."""

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """One result of a check; a "problem" must be solved before the table can be used."""

    level: Level
    subject: str
    text: str


@dataclass(eq=False)
class TableCheck:
    """What was found in a table, and the options with which commands read it."""

    findings: list[Finding] = field(default_factory=list)
    """In the order of the checks."""
    columns: ColumnNames = field(default_factory=lambda: ColumnNames(features=None, query=(), drop=()))
    """What to read from the table, as in `QuerySet.from_table`."""
    group: str | None = None
    """Query column that keeps queries together in splits."""
    queries: QuerySet | None = None
    """The table, if it can be read."""

    @property
    def ready(self) -> bool:
        """Whether nothing must be solved first."""
        return all(finding.level != "problem" for finding in self.findings)

    def add(self, level: Level, subject: str, text: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(level, subject, text))

    def commands(self, path: str) -> list[str]:
        """Return the commands to type next, quoted for a shell; none if a problem must be solved first."""
        if not self.ready or self.queries is None:
            return []
        words = _column_options(self.columns)
        if not self.queries.n_features:
            engine = ["--engine", "elasticsearch+http://localhost:9200/INDEX", "--features", "features.toml"]
            return [shlex.join(["kinrank", "log", *engine, "--judgments", path, "--out", "logged.parquet", *words])]
        study, training = ["kinrank", "headroom", path, *words], ["kinrank", "train", path, "--model", "model", *words]
        if self.group is not None:
            study += ["--group", self.group]
            training += ["--set", f"group_column={self.group}"]
        return [shlex.join(study), shlex.join(training)]


_RANKS = "rank position pos place displayed_rank result_position"
_CLICKED = "clicked click clicks is_click is_clicked"
_SESSIONS = "session session_id sessionid visit visit_id search_id query_id impression_id request_id"


def click_log_command(columns: Sequence[str], path: str) -> str | None:
    """Return the command that makes judgments of a click log; None if its columns are not those of one.

    Examples
    --------
    >>> click_log_command(["q", "sid", "session_id", "sku", "position", "clicked"], "log.csv")
    'kinrank clicks log.csv --out judgments.parquet --columns query=q,session=session_id,document=sku,rank=position'
    >>> click_log_command(["query", "doc_id", "y", "bm25"], "judged.csv") is None
    True
    """
    wanted = {"query": _TEXTS, "session": _SESSIONS, "document": _DOCUMENTS, "rank": _RANKS, "clicked": _CLICKED}
    found = {role: _guess(columns, names) for role, names in wanted.items()}
    if any(found[role] is None for role in ("query", "document", "rank", "clicked")) or _guess(columns, _GRADES):
        return None
    named = ",".join(f"{role}={name or 'COLUMN'}" for role, name in found.items() if name != role)
    return shlex.join(
        ["kinrank", "clicks", path, "--out", "judgments.parquet", *(["--columns", named] if named else [])]
    )


def check_table(table: pa.Table, given: ColumnNames) -> TableCheck:
    """Check a table with one row per candidate.

    Columns that are not `given` by name are guessed from names and values.
    """
    check = TableCheck()
    if len(set(table.column_names)) < table.num_columns:
        twice = next(name for name in table.column_names if table.column_names.count(name) > 1)
        check.add("problem", "columns", f"two columns are named {twice!r}: rename one")
        return check
    columns = {name: decoded(column) for name, column in zip(table.column_names, table.columns, strict=True)}
    check.columns = _named_columns(check, columns, given)
    if check.ready:
        _check_other_columns(check, columns)
        try:
            check.queries = QuerySet.from_table(table, **check.columns)
        except DataError as error:
            check.add("problem", "columns", str(error))
    if check.queries is not None:
        check_queries(check)
    return check


def _named_columns(check: TableCheck, columns: dict[str, pa.ChunkedArray], given: ColumnNames) -> ColumnNames:
    """Find the columns of ids, texts and grades."""
    texts = [name for name, column in columns.items() if is_text(column.type)]
    numbers = [name for name, column in columns.items() if is_number(column.type)]
    text = given.get("text") or _guess(texts, f"query.text {_TEXTS}")
    qid = _given(given, "qid", columns) or _guess(columns, _QUERY_IDS) or text or _guess(columns, _TEXTS)
    y = _given(given, "y", columns) or _guess(numbers, _GRADES) or _guess(texts, _GRADES)
    doc_id = _given(given, "doc_id", columns) or _guess([name for name in columns if name not in (qid, y)], _DOCUMENTS)
    wanted = {"query ids": ("qid", qid), "grades": ("y", y)}
    for subject, (option, name) in wanted.items():
        if name is None or name not in columns:
            check.add(
                "problem",
                subject,
                f"no column of {subject} among {list(columns)}: --columns {option}=COLUMN names it",
            )
    if y in texts:
        check.add("problem", "grades", f"{y!r} is {words_of(columns[y])}")
    named: ColumnNames = {"qid": qid or "qid", "y": y or "y"}
    if doc_id is not None:
        named["doc_id"] = doc_id
    else:
        check.add("note", "documents", "no document ids: rankings cannot be written, and duplicates cannot be found")
    if text is not None:
        named["text"] = text
    title = _guess([name for name in texts if name not in (qid, doc_id, text, *given.get("drop", ()))], _TITLES)
    if qid in columns and title is not None and _differs_within(columns[qid], columns[title]):
        named["title"] = title
        check.add("ok", "documents", f"{title!r} has their titles, by which explanations name them")
    if qid is not None and qid == text:
        check.add("ok", "query ids", f"the text of a query, {qid!r}, is its id")
    for name in (qid, doc_id):
        if name is not None and name in columns and columns[name].null_count:
            row = pc.index(columns[name].is_null(), True).as_py()
            check.add("problem", "ids", f"{name!r} is empty in {columns[name].null_count:,} rows, first in row {row}")
    return {**named, "features": given.get("features"), "query": given.get("query", ()), "drop": given.get("drop", ())}


def _check_other_columns(check: TableCheck, columns: dict[str, pa.ChunkedArray]) -> None:
    """Find columns that must not be features, or that cannot be read."""
    named = {check.columns.get(option) for option in ("qid", "y", "doc_id", "text", "title")}
    known = {*named, *check.columns["drop"], *check.columns["query"], WEIGHT}
    others = {
        name: column for name, column in columns.items() if name not in known and not name.startswith(INFO_PREFIX)
    }
    suspects = dict(suspect_names(others))
    qid = columns[check.columns["qid"]]
    dropped, query = [], []
    for name, column in others.items():
        reason = _reason_to_drop(name, column, qid, suspects)
        if reason is not None:
            check.add("note", "columns", f"{name!r} {reason}: dropped")
            dropped.append(name)
        elif is_number(column.type) and _distinct_pairs(qid, column) == len(pc.unique(qid)):
            if len(pc.unique(column)) > _MAX_QUANTITIES and _is_whole(column):
                check.add("note", "groups", f"{name!r} numbers something that the query belongs to: no feature")
                query.append(name)
            else:
                check.add("ok", "columns", f"{name!r} is the same for all candidates of a query")
        elif plain_name(name) in _WEIGHTS.split():
            check.add("note", "weights", f"{name!r} is read as a feature; rename it to {WEIGHT} if it weighs judgments")
    check.columns["drop"] = [*check.columns["drop"], *dropped]
    check.columns["query"] = [*check.columns["query"], *query]


def _reason_to_drop(name: str, column: pa.ChunkedArray, qid: pa.ChunkedArray, suspects: dict[str, str]) -> str | None:
    if name in suspects and not name.startswith(QUERY_PREFIX):
        return f"looks like {suspects[name]}"
    if is_text(column.type):
        if _differs_within(qid, column):
            return "is text that differs within a query (if it holds numbers, write them with a decimal point)"
        return None
    if not is_number(column.type):
        return None if name.startswith(QUERY_PREFIX) else f"is {column.type}, neither a number nor text"
    values = column.drop_null().cast(pa.float64(), safe=False).to_numpy()
    if plain_name(name) in ("", *_ROW_NUMBERS.split()) or _counts_rows(values, len(column)):
        return "is a row number"
    if len(values) == 0 or (len(column) > 1 and np.ptp(values) == 0 and len(values) == len(column)):
        return "is empty" if len(values) == 0 else f"is {values[0]:g} in every row"
    return None


def check_queries(check: TableCheck) -> None:
    """Add findings about the queries that were read: grades, order, duplicates, missing values, groups and leaks."""
    queries = check.queries
    if queries is None or not len(queries):
        check.add("problem", "queries", "the table has no rows")
        return
    names = ", ".join(queries.feature_names)
    level: Level = "ok" if queries.n_features else "note"
    check.add("ok", "queries", f"{len(queries):,} queries, {queries.n_rows:,} rows, {queries.sizes.max()} rows at most")
    if len(queries) == 1:
        check.add("note", "queries", "one query: nothing can be held out to measure a gain on")
    texts = queries.query_columns.get(TEXT)
    empty = 0 if texts is None else int(np.count_nonzero(np.char.strip(texts.astype(np.str_)) == ""))
    if empty:
        check.add("note", "texts", f"{empty:,} queries have an empty text: they have no kin, and are no kin of others")
    check.add(level, "features", names or "none: kinrank log takes them from a search engine")
    if queries.row_order is not None:
        check.add("note", "order", "the rows of a query are not adjacent: they are sorted when the table is read")
    for level, subject, text in (*_grade_findings(queries), *_value_findings(queries), *_weight_findings(queries)):
        check.add(level, subject, text)
    if queries.doc_id is not None:
        pairs = np.unique(np.stack([queries.query_of_row, _codes(queries.doc_id)]), axis=1).shape[1]
        if pairs < queries.n_rows:
            check.add("note", "documents", f"{queries.n_rows - pairs:,} documents are repeated within their query")
    check.group = _group(check, queries)
    if queries.y is not None and queries.n_features:
        giveaway, added = find_giveaway(queries), find_added_rows(queries)
        if giveaway is not None:
            check.add("note", "leaks", f"{giveaway}; if it is made from the judgments, add --columns drop=FEATURE")
        if added is not None:
            check.add("problem", "leaks", str(added.error()))


def _grade_findings(queries: QuerySet) -> Iterator[tuple[Level, str, str]]:
    grades, counts = np.unique(queries.grades[queries.judged], return_counts=True)
    if not len(grades):
        yield "problem", "grades", "no row has a grade"
        return
    shown = ", ".join(f"{grade:g}: {count:,}" for grade, count in zip(grades[:10], counts[:10], strict=True))
    yield "ok", "grades", shown + (f" and {len(grades) - 10:,} other values" if len(grades) > 10 else "")
    if (unjudged := int((~queries.judged).sum())) > 0:
        yield "note", "grades", f"{unjudged:,} of {queries.n_rows:,} rows are not judged: they count as grade 0"
    if grades[0] < 0 or np.any(grades != np.floor(grades)) or grades[-1] > 30:
        yield "note", "grades", "trees need whole grades from 0 to 30"
    highest = np.maximum.reduceat(queries.grades, queries.offsets[:-1])
    lowest = np.minimum.reduceat(queries.grades, queries.offsets[:-1])
    if (same := int((highest == lowest).sum())) > 0:
        level: Level = "problem" if same == len(queries) and queries.n_features else "note"
        effect = (
            "nothing is learned from them" if queries.n_features else "hits of the engine without a grade count as 0"
        )
        yield level, "grades", f"{same:,} of {len(queries):,} queries have one grade only: {effect}"


def _value_findings(queries: QuerySet) -> Iterator[tuple[Level, str, str]]:
    missing, infinite = np.isnan(queries.X).sum(axis=0), np.isinf(queries.X).sum(axis=0)
    if missing.any():
        counts = _listed(
            f"{name}: {count:,}" for name, count in zip(queries.feature_names, missing, strict=True) if count
        )
        yield "note", "missing", f"{missing.sum():,} values ({counts}): filled with the mean of the feature"
    for name in np.array(queries.feature_names)[infinite > 0].tolist():
        yield (
            "problem",
            "values",
            f"{name!r} is infinite in {infinite[queries.feature_names.index(name)]:,} rows: clip it",
        )


def _weight_findings(queries: QuerySet) -> Iterator[tuple[Level, str, str]]:
    weights = queries.sample_weight
    if weights is not None:
        yield "ok", "weights", f"{WEIGHT} from {weights.min():g} to {weights.max():g}"
        if not weights.all():
            yield "note", "weights", f"{(weights == 0).sum():,} rows have weight 0: nothing is learned from them"


def _group(check: TableCheck, queries: QuerySet) -> str | None:
    """Return a query column that keeps the same text together, and report the columns that could be groups."""
    named = []
    for name, values in queries.query_columns.items():
        n_values = len(np.unique(values)) if values.ndim == 1 else len(queries)
        if name == "text" and n_values < len(queries):
            text = f"{len(queries):,} queries have {n_values:,} different texts: --group keeps the same text together"
            check.add("note", "groups", text)
            return "text"
        if 1 < n_values < len(queries):
            named.append(f"{name} ({n_values:,} values)")
    if named:
        check.add("ok", "groups", f"for --group, if queries of one value must not be split: {_listed(named)}")
    return None


def _column_options(columns: ColumnNames) -> list[str]:
    """Return the option that names columns, as words of a command line, if any differs from the defaults."""
    defaults = {"qid": ("qid",), "y": ("y",), "doc_id": ("doc_id",), "text": ("text", "query.text"), "title": (TITLE,)}
    named = [
        f"{name}={_escaped(str(value))}"
        for name, usual in defaults.items()
        if (value := columns.get(name, usual[0])) not in usual
    ]
    lists = {"features": columns["features"], "query": columns["query"], "drop": columns["drop"]}
    named += [f"{name}={','.join(map(_escaped, names))}" for name, names in lists.items() if names]
    return ["--columns", ",".join(named)] if named else []


def _escaped(name: str) -> str:
    return name.replace(",", "\\,")


def _given(given: ColumnNames, option: Literal["qid", "y", "doc_id"], columns: Iterable[str]) -> str | None:
    """Return a column that was named, or the default if the table has it."""
    name = given.get(option)
    return name if name is not None and (name in columns or name != option) else None


def _guess(names: Iterable[str], vocabulary: str) -> str | None:
    by_plain_name = {plain_name(name): name for name in reversed(list(names))}
    return next((by_plain_name[word] for word in vocabulary.split() if word in by_plain_name), None)


def _distinct_pairs(qid: pa.ChunkedArray, column: pa.ChunkedArray) -> int:
    return len(pa.table({"qid": qid, "value": column}).group_by(["qid", "value"]).aggregate([]))


def _differs_within(qid: pa.ChunkedArray, column: pa.ChunkedArray) -> bool:
    return _distinct_pairs(qid, column) > len(pc.unique(qid))


def _is_whole(column: pa.ChunkedArray) -> bool:
    values = column.drop_null().cast(pa.float64(), safe=False).to_numpy()
    return bool(np.all(values == np.floor(values)))


def _counts_rows(values: np.ndarray[Any, Any], n_rows: int) -> bool:
    return n_rows > 2 and len(values) == n_rows and bool(np.all(np.diff(values) == 1))


def _codes(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    codes: np.ndarray[Any, Any] = np.unique(values, return_inverse=True)[1]
    return codes


def _listed(items: Iterable[str]) -> str:
    listed: Sequence[str] = list(items)
    more = f" and {len(listed) - _EXAMPLES} more" if len(listed) > _EXAMPLES else ""
    return ", ".join(listed[:_EXAMPLES]) + more


# --- names of columns that are hardly ever features: grades, clicks and ids -------------------------------------------


_GRADE_NAMES = "labels? grades? targets? judge?ments? relevance relevant rel qrels? is_relevant y_true"
_CLICKS = "clicks? clicked purchased add_to_cart"
_IDS = "id ids uuid sku asin ean gtin qid docid docno"
_MEANINGS = {
    "a grade": rf"({_GRADE_NAMES.replace(' ', '|')})(_(label|grade|score))?",
    "clicks on the document": rf"((n|num|total)_)?({_CLICKS.replace(' ', '|')})",
    "an id": rf"(\w+_)?({_IDS.replace(' ', '|')})",
}


def plain_name(name: str) -> str:
    """Return a name in lower case, with underscores between its words.

    Examples
    --------
    >>> plain_name("Product-ID "), plain_name("Unnamed: 0")
    ('product_id', 'unnamed:_0')
    """
    return re.sub(r"[\s.-]+", "_", name.strip().lower())


def suspect_names(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that looks like something other than a feature, and what it looks like."""
    for name in names:
        for meaning, pattern in _MEANINGS.items():
            if re.fullmatch(pattern, plain_name(name)):
                yield name, meaning
                break
