"""Read and write queries by path; the suffix, or the content of a folder, decides the format.

Modules that need NumPy or PyArrow are imported on use: the command line shows `FORMATS` in its help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kinrank.errors import DataError

if TYPE_CHECKING:
    from kinrank.data.queryset import QuerySet
    from kinrank.data.tables import ColumnNames

Format = Literal["folder", "parquet", "csv", "letor"]

ROWS_PER_BLOCK = 1_000_000
LETOR_SUFFIXES = (".txt", ".letor", ".svm", ".svmlight")
FORMATS = (
    f"a table (.csv or .tsv, optionally .gz or .xz; .parquet or a folder of them), a LETOR file "
    f"({', '.join(LETOR_SUFFIXES)}, optionally .gz or .xz), or a kinrank folder"
)


@dataclass(frozen=True)
class Source:
    """A file or folder of queries."""

    path: str
    """Path of the file or folder."""
    n_features: int | None = None
    """Number of features in a LETOR file; by default its largest feature index. Ignored for other formats."""
    columns: ColumnNames = field(default_factory=dict)  # type: ignore[assignment]
    """Names of columns of a table, as in `QuerySet.from_table`. Ignored for other formats."""

    @property
    def format(self) -> Format:
        """Format of the data; raises `DataError` if nothing readable is at the path."""
        path = Path(self.path)
        if not path.exists():
            raise DataError(f"{self.path}: no such file or folder; check the path")
        if not path.is_dir():
            return _format_of_suffix(self.path)
        if (path / "manifest.json").exists():
            return "folder"
        if any(path.rglob("*.parquet")):
            return "parquet"
        raise DataError(f"{self.path}: this folder has no manifest.json and no .parquet file; expected {FORMATS}")

    def read(self) -> QuerySet:
        """Read all queries. A kinrank folder is memory-mapped, other formats are loaded."""
        from kinrank.data.delimited import read_csv
        from kinrank.data.letor import read_letor
        from kinrank.data.parquet import read_parquet
        from kinrank.data.queryset import QuerySet

        format_ = self.format
        if format_ == "folder":
            return QuerySet.open(self.path)
        if format_ == "letor":
            return read_letor(self.path, n_features=self.n_features)
        return (read_parquet if format_ == "parquet" else read_csv)(self.path, **self.columns)

    def blocks(self) -> Iterator[QuerySet]:
        """Yield the queries in blocks of about `ROWS_PER_BLOCK` rows; a text file is one block."""
        from kinrank.data.blocks import QuerySetBlocks
        from kinrank.data.parquet import iter_parquet

        n_rows = self.n_rows
        if n_rows is None or n_rows <= ROWS_PER_BLOCK:
            yield self.read()  # in one piece, so that a small Parquet file may hold rows in any order
        elif self.format == "parquet":
            yield from iter_parquet(self.path, rows_per_block=ROWS_PER_BLOCK, **self.columns)
        else:
            blocks = QuerySetBlocks(self.read(), ROWS_PER_BLOCK)
            for block in range(len(blocks)):
                yield from blocks.read(block)

    @property
    def n_rows(self) -> int | None:
        """Number of rows, or None if only reading the file would tell."""
        format_ = self.format
        if format_ in ("letor", "csv"):
            return None
        if format_ == "folder":
            return self.read().n_rows
        from kinrank.data.parquet import count_rows

        return count_rows(self.path)


def output_format(path: str) -> Format:
    """Return the format to write: "folder" if the path has no suffix, ends in ``/`` or is a folder.

    Examples
    --------
    >>> output_format("judged.txt.xz"), output_format("judged.parquet"), output_format("judged")
    ('letor', 'parquet', 'folder')
    >>> output_format("judged.xlsx")
    Traceback (most recent call last):
    ...
    kinrank.errors.DataError: judged.xlsx: unknown suffix; expected ...
    """
    if path.endswith("/") or Path(path).is_dir() or not Path(path).suffix:
        return "folder"
    return _format_of_suffix(path)


def write_sources(sources: Iterable[Source], path: str, advance: Callable[[int], None] = lambda _: None) -> QuerySet:
    """Write the queries of all sources into one file or folder.

    A kinrank folder is written block by block; other formats are written in one piece.

    `advance` is called with the number of rows after each block.
    """
    from kinrank.data.queryset import QuerySet, write_folder

    if output_format(path) == "folder":
        write_folder(_counted((block for source in sources for block in source.blocks()), advance), path)
        return QuerySet.open(path)
    parts = list(_counted((source.read() for source in sources), advance))
    queries = parts[0] if len(parts) == 1 else QuerySet.concat(parts)
    write_queries(queries, path)
    return queries


def write_queries(queries: QuerySet, path: str) -> None:
    """Write queries in the format of the path; see `output_format`."""
    from kinrank.data.delimited import write_csv
    from kinrank.data.letor import write_letor
    from kinrank.data.parquet import write_parquet

    format_ = output_format(path)
    if format_ == "folder":
        queries.save(path)
    else:
        {"letor": write_letor, "parquet": write_parquet, "csv": write_csv}[format_](queries, path)


def _format_of_suffix(path: str) -> Format:
    name = Path(path)
    compressed = name.suffix in (".gz", ".xz")
    suffix = name.with_suffix("").suffix if compressed else name.suffix
    if suffix == ".parquet" and not compressed:
        return "parquet"
    if suffix in (".csv", ".tsv"):
        return "csv"
    if suffix in LETOR_SUFFIXES or (compressed and not suffix):
        return "letor"
    raise DataError(f"{path}: unknown suffix; expected {FORMATS}")


def _counted(blocks: Iterable[QuerySet], advance: Callable[[int], None]) -> Iterator[QuerySet]:
    for block in blocks:
        yield block
        advance(block.n_rows)
