"""What an experiment is made of: pieces of work, and the figures that they make together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from numpy.typing import NDArray

from reproduction.data_folder import FOLDS, DataFolder, letor_files

Values = NDArray[Any]


@dataclass(frozen=True)
class Findings:
    """What a piece of work found.

    Attributes
    ----------
    figures : dict
        Whatever JSON can hold.
    values : dict of str to array
        Values of each query, from which tests over all pieces are made.
    """

    figures: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Values] = field(default_factory=dict)


@dataclass(frozen=True)
class Piece:
    """Work that is done, and kept, as one: a fold of a collection.

    Attributes
    ----------
    compute : callable
        Does it. Another process does the work, so it must be importable: a function of a module, or a partial of one.
    needs : tuple of str
        The files it reads, in the data folder.
    minutes : float
        About how long it takes on one core. The longest are started first, and the progress bar counts them.
    """

    compute: Callable[[DataFolder], Findings]
    needs: tuple[str, ...] = ()
    minutes: float = 0.1


def letor_pieces(
    one_fold: Callable[[str, int, DataFolder], Findings], minutes: Mapping[str, float]
) -> dict[str, Piece]:
    """A piece for every fold of LETOR collections, given the minutes that a fold of each takes."""
    return {
        _letor_name(collection, fold): Piece(partial(one_fold, collection, fold), letor_files(collection), each)
        for collection, each in minutes.items()
        for fold in FOLDS
    }


def found_on_folds(found: Mapping[str, Findings], collection: str) -> list[Findings]:
    """What the `letor_pieces` of a collection found, fold by fold."""
    return [found[_letor_name(collection, fold)] for fold in FOLDS]


def _letor_name(collection: str, fold: int) -> str:
    return f"{collection} fold {fold}"


@dataclass(frozen=True)
class Part:
    """One experiment of a paper.

    Attributes
    ----------
    name : str
        Its name, in file names too.
    paper : str
        The paper, a key of `reproduction.PAPERS`.
    pieces : mapping of str to Piece
        The work, by a name each.
    summary : callable
        The figures of the part from the findings of all pieces.
    """

    name: str
    paper: str
    pieces: Mapping[str, Piece]
    summary: Callable[[Mapping[str, Findings]], dict[str, Any]]
