"""Texts by id, such as the titles of documents."""

from __future__ import annotations

from kinrank.data.textfile import PathLike
from kinrank.errors import FileFormatError


def read_labels(path: PathLike) -> dict[str, str]:
    r"""Read texts by id from a file with lines ``ID<tab>TEXT``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "titles.tsv"
    >>> _ = path.write_text("680\tPulp Fiction\n")
    >>> read_labels(path)
    {'680': 'Pulp Fiction'}
    """
    labels = {}
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            name, tab, text = line.rstrip("\n").partition("\t")
            if not tab:
                raise FileFormatError(path, number, "expected an id, a tab and a text")
            labels[name] = text
    return labels
