"""Judged queries by path: the form is told by the suffix, or by what a folder holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kinrank.errors import DataError

if TYPE_CHECKING:
    from kinrank.data.queryset import QuerySet

Form = Literal["folder", "parquet", "letor"]

ROWS_PER_BLOCK = 1_000_000
LETOR = (".txt", ".letor", ".svm", ".svmlight")
FORMS = (
    f"a LETOR file ({', '.join(LETOR)}, packed as .gz or .xz), a .parquet file or folder of them, or a kinrank folder"
)


@dataclass(frozen=True)
class Source:
    """A file or folder of queries.

    Attributes
    ----------
    path : str
        Where it is.
    n_features : int or None
        How many features a LETOR file has; its largest index where not given. Other forms know by themselves.
    qid, y, doc_id : str
        Columns of a Parquet file. Other forms know by themselves.
    """

    path: str
    n_features: int | None = None
    qid: str = "qid"
    y: str = "y"
    doc_id: str = "doc_id"

    @property
    def form(self) -> Form:
        """What is there; an error where it is nothing that can be read."""
        path = Path(self.path)
        if not path.exists():
            raise DataError(f"{self.path}: no such file or folder; check the path")
        if not path.is_dir():
            return _form_of_suffix(self.path)
        if (path / "manifest.json").exists():
            return "folder"
        if any(path.rglob("*.parquet")):
            return "parquet"
        raise DataError(f"{self.path}: neither manifest.json nor any .parquet in this folder; expected {FORMS}")

    def read(self) -> QuerySet:
        """All of it: a folder memory-mapped, anything else in memory."""
        from kinrank.data.letor import read_letor
        from kinrank.data.parquet import read_parquet
        from kinrank.data.queryset import QuerySet

        form = self.form
        if form == "folder":
            return QuerySet.open(self.path)
        if form == "letor":
            return read_letor(self.path, n_features=self.n_features)
        return read_parquet(self.path, **self._columns)

    def blocks(self) -> Iterator[QuerySet]:
        """All of it, about `ROWS_PER_BLOCK` rows at a time where the form allows it."""
        from kinrank.data.parquet import iter_parquet

        n_rows = self.n_rows
        if n_rows is None or n_rows <= ROWS_PER_BLOCK:
            yield self.read()  # at once: rows of a query may then lie anywhere in a Parquet file
        elif self.form == "parquet":
            yield from iter_parquet(self.path, rows_per_block=ROWS_PER_BLOCK, **self._columns)
        else:
            yield from _slices(self.read())

    @property
    def n_rows(self) -> int | None:
        """How many rows there are, where that can be known without reading them."""
        form = self.form
        if form == "letor":
            return None
        if form == "folder":
            return self.read().n_rows
        from kinrank.data.parquet import count_rows

        return count_rows(self.path)

    @property
    def _columns(self) -> dict[str, Any]:
        return {"qid": self.qid, "y": self.y, "doc_id": self.doc_id}


def form_to_write(path: str) -> Form:
    """The form that a path asks for: a folder where it has no suffix, ends in ``/`` or is one already.

    Examples
    --------
    >>> form_to_write("judged.txt.xz"), form_to_write("judged.parquet"), form_to_write("judged")
    ('letor', 'parquet', 'folder')
    >>> form_to_write("judged.csv")
    Traceback (most recent call last):
    ...
    kinrank.errors.DataError: judged.csv: its suffix names no form of data; expected ...
    """
    if path.endswith("/") or Path(path).is_dir() or not Path(path).suffix:
        return "folder"
    return _form_of_suffix(path)


def write(sources: Iterable[Source], path: str, advance: Callable[[int], None]) -> QuerySet:
    """Write the queries of all sources together, in the form that the path asks for.

    A folder is written block by block. The other forms are written from memory, or from a folder that is mapped.

    Parameters
    ----------
    sources
        What to write, one after the other.
    path
        Where to.
    advance
        Told the number of rows after every block.

    Returns
    -------
    QuerySet
        What was written.
    """
    from kinrank.data.folder_format import write_folder
    from kinrank.data.letor import write_letor
    from kinrank.data.parquet import write_parquet
    from kinrank.data.queryset import QuerySet

    form = form_to_write(path)
    if form == "folder":
        write_folder(_told((block for source in sources for block in source.blocks()), advance), path)
        return QuerySet.open(path)
    parts = list(_told((source.read() for source in sources), advance))
    queries = parts[0] if len(parts) == 1 else QuerySet.concat(parts)
    (write_letor if form == "letor" else write_parquet)(queries, path)
    return queries


def _form_of_suffix(path: str) -> Form:
    name = Path(path)
    packed = name.suffix in (".gz", ".xz")
    suffix = name.with_suffix("").suffix if packed else name.suffix
    if suffix == ".parquet" and not packed:
        return "parquet"
    if suffix in LETOR or (packed and not suffix):  # LETOR is the one form that is packed
        return "letor"
    raise DataError(f"{path}: its suffix names no form of data; expected {FORMS}")


def _slices(queries: QuerySet) -> Iterator[QuerySet]:
    """Whole queries, as many as end within `ROWS_PER_BLOCK` rows, at least one."""
    first = 0
    while first < len(queries):
        most = int(queries.offsets[first]) + ROWS_PER_BLOCK
        last = max(first + 1, int(queries.offsets.searchsorted(most, side="right")) - 1)
        yield queries[first:last]
        first = last


def _told(blocks: Iterable[QuerySet], advance: Callable[[int], None]) -> Iterator[QuerySet]:
    for block in blocks:
        yield block
        advance(block.n_rows)
