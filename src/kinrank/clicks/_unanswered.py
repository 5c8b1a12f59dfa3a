"""Searches that found nothing, or nothing that anybody chose, and the query that they may have meant."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from kinrank.clicks._counts import Funnel
from kinrank.clicks.read import (
    NORMALIZED,
    LogOptions,
    check_files,
    create_ubi,
    log_format,
    open_database,
    quote,
    table_rows,
)
from kinrank.data.files import PathLike
from kinrank.memory._spelling import Spellings

MOST = 20_000
"""Queries with clicks that others are compared with, those with most searches first."""
FEWEST = 3
"""Searches below which no click says little."""


SHOWN = 3
"""Documents of the other query that are named."""


@dataclass(frozen=True)
class UnansweredQuery:
    """A query whose searches mostly found nothing, or that nobody chose anything for."""

    query: str
    searches: int
    empty: int
    """Searches without results; 0 if the log has only rows of shown documents."""
    kin: str | None
    """A query with clicks that this one is a spelling of."""
    documents: tuple[str, ...] = ()
    """What people chose most for that query."""

    @property
    def rule(self) -> str | None:
        """The options of ``kinrank admin rules ADDRESS`` that search the other query from now on.

        Examples
        --------
        >>> UnansweredQuery("irnoman", 12, 12, "iron man").rule
        "--query irnoman --redirect 'iron man'"
        """
        return None if self.kin is None else shlex.join(["--query", self.query, "--redirect", self.kin])


def unanswered_queries(
    files: Sequence[PathLike], options: LogOptions | None = None, *, limit: int = 50
) -> list[UnansweredQuery]:
    r"""Return the queries without results, and those without clicks, that were searched most.

    Queries of fewer clients than `LogOptions.min_clients` are left out, and not suggested. Bots and filtered
    lists count.

    Parameters
    ----------
    files
        The log: UBI queries and events, or a table with one row per shown document. A search without results has no
        rows in a table, unless one without a document stands for it.
    options
        Names of columns, and how many clients are enough.
    limit
        How many to return.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.csv"
    >>> rows = [f"{query},{query}{n},{document},1,{clicked}" for n in range(5)
    ...         for query, document, clicked in (("iron man", "d1", 1), ("irnoman", "", 0))]
    >>> _ = path.write_text("query,session,document,rank,clicked\n" + "\n".join(rows))
    >>> unanswered_queries([path])
    [UnansweredQuery(query='irnoman', searches=5, empty=5, kin='iron man', documents=('d1',))]
    """
    chosen = options or LogOptions()
    paths = check_files(files)
    with open_database(chosen) as database:
        if log_format(database, paths, chosen) == "ubi":
            create_ubi(database, paths)
            counted = ", ".join(quote(action) for action in chosen.actions)
            shown = f"""
                SELECT l.list, l.query, l.client, len(l.documents) = 0 AS empty, e.document
                FROM (SELECT list, any_value(query) AS query, any_value(client) AS client,
                        any_value(documents) AS documents FROM lists WHERE list IS NOT NULL GROUP BY list) AS l
                LEFT JOIN (SELECT list, document FROM events WHERE action IN ({counted})) AS e USING (list)"""
        else:
            rows = table_rows(database, paths, chosen, Funnel())
            shown = f"""
                SELECT concat_ws(' ', CAST(session AS VARCHAR), query) AS list, query, client,
                    coalesce(document, '') = '' AS empty, CASE WHEN clicked > 0 THEN document END AS document
                FROM ({rows})"""
        database.execute(f"""
            CREATE TABLE searches AS
            SELECT list, any_value({NORMALIZED}) AS text, any_value(client) AS client,
                coalesce(bool_and(empty), false) AS empty,
                list(DISTINCT document) FILTER (document IS NOT NULL) AS chosen
            FROM ({shown}) WHERE query IS NOT NULL GROUP BY list""")
        people = "count(DISTINCT coalesce(client, list)) FILTER (len(text) > 0)"
        [(named,)] = database.execute("SELECT count(client) > 0 FROM searches").fetchall()
        fewest = chosen.min_clients if named else 1
        found = database.execute(f"""
            SELECT text, count(*) AS searches, count(*) FILTER (empty) AS empty, count(chosen) AS clicked
            FROM searches GROUP BY text HAVING {people} >= {fewest} ORDER BY searches DESC, text""").fetchall()
        known = [text for text, _, _, clicked in found if clicked][:MOST]
        lost = [row for row in found if 2 * row[2] > row[1] or (not row[3] and row[1] >= FEWEST)][:limit]
        spellings = Spellings(known)
        kin = {text: spellings.nearest(text) for text, *_ in lost}
        documents: dict[str, list[str]] = {}
        for text, document in database.execute(
            "SELECT text, document FROM (SELECT text, unnest(chosen) AS document FROM searches WHERE text IN "
            "(SELECT unnest(?))) GROUP BY ALL ORDER BY count(*) DESC, document",
            ([each for each in kin.values() if each is not None],),
        ).fetchall():
            documents.setdefault(text, []).append(document)
    return [
        UnansweredQuery(text, searches, empty, kin[text], tuple(documents.get(kin[text] or "", ())[:SHOWN]))
        for text, searches, empty, _ in lost
    ]
