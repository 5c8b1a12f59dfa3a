"""Why memory lifts or lowers a candidate, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.memory._tables import DOCUMENT
from kinrank.memory.answers import Asked
from kinrank.memory.columns import QueryMemory

_LEAST_SIMILAR = 0.2  # queries whose letters are less alike are not named
_LEAST_COSINE = 0.5  # nor those whose vectors are


@dataclass(eq=False)
class Reasons:
    """What known queries say of one candidate."""

    same: list[float] = field(default_factory=list)
    """Its good part for each known query of the same text, between 0 and 1."""
    right: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """The texts of similar queries for which it is right, and wrong, most similar first."""
    in_meaning: set[str] = field(default_factory=set)
    """Those of them that are similar in meaning alone."""
    keys: list[tuple[str, str, int]] = field(default_factory=list)
    """Name and value of each key, and for how many similar queries something of it is right."""
    everyone: int = 0
    """For how many queries it is right."""

    def __str__(self) -> str:
        return self.why(None)

    def why(self, rose: bool | None) -> str:
        """Return what is known in words; if the candidate rose or fell, only what speaks for that.

        Examples
        --------
        >>> known = Reasons(right=["toy story 2"], wrong=["toy boat"])
        >>> known.why(True), known.why(False)
        ('judged right for *toy story 2*', 'judged wrong for *toy boat*')
        >>> Reasons(wrong=["toy boat"]).why(True)  # it rose because others fell
        ''
        >>> Reasons(right=["movies for kids"], in_meaning={"movies for kids"}).why(True)
        'judged right for *movies for kids* (similar in meaning)'
        """
        said: list[str] = []
        up, down = rose is not False, rose is not True
        if self.same and (up if max(self.same) > 0 else down):
            said.append(f"judged {'right' if max(self.same) > 0 else 'wrong'} for this query before")
        for how, of, told in (("right", self.right, up), ("wrong", self.wrong, down)):
            if of and told:
                said.append(f"judged {how} for {listed(of, ' (similar in meaning)' * (of[0] in self.in_meaning))}")
        if up:
            said += [f"{name} {value} is right for {_queries(n)} like this" for name, value, n in self.keys if n]
        if not (said or self.same or self.right or self.wrong) and self.everyone:
            said = [f"judged right for {_queries(self.everyone)}, none like this"]
        return ", ".join(said)


def reasons_of(memory: QueryMemory, query: QuerySet) -> list[Reasons]:
    """Return what is known of each candidate of one query.

    Examples
    --------
    >>> columns = {"text": ["toy story", "toy story 2"]}
    >>> names = {"qid": [1, 2], "doc_id": ["d1", "d1"], "query_columns": columns}
    >>> queries = QuerySet.from_arrays([[0.0], [0.0]], [1, 1], **names)
    >>> print(reasons_of(QueryMemory.of(queries[1]), queries[0])[0])
    judged right for *toy story 2*
    """
    asked = memory.asked(query)
    found = [Reasons() for _ in range(query.n_rows)]
    similar, in_meaning = _like(memory, asked, _LEAST_SIMILAR)
    for place in similar:
        for row, good in _cells_of(memory, DOCUMENT, place, asked.targets[DOCUMENT]):
            (found[row].right if good > 0 else found[row].wrong).append(str(memory.texts[place]))
            if place in in_meaning:
                found[row].in_meaning.add(str(memory.texts[place]))
    for place in memory.same(asked.key)[0].tolist():
        if place < 0:
            continue
        for row, good in _cells_of(memory, DOCUMENT, place, asked.targets[DOCUMENT]):
            found[row].same.append(good)
    for key in memory.keys:
        counts = np.zeros(query.n_rows, dtype=np.int64)
        for place in similar:
            for row, good in _cells_of(memory, key, place, asked.targets[key]):
                counts[row] += good > 0
        for reasons, value, count in zip(found, query.doc_columns[key].tolist(), counts.tolist(), strict=True):
            reasons.keys.append((key, str(value), count))
    everyone = np.zeros((query.n_rows, 2), dtype=np.float32)
    memory.sums.add_everyone(DOCUMENT, asked.targets[DOCUMENT], everyone)
    for reasons, good in zip(found, everyone[:, 1].tolist(), strict=True):
        reasons.everyone = round(good)
    return found


def texts_like(memory: QueryMemory, query: QuerySet, least: float = _LEAST_SIMILAR) -> list[str]:
    """Return the different texts of the kin of one query whose similarity is above `least`, most similar first.

    Examples
    --------
    >>> names = {"qid": [1, 2], "doc_id": ["d1", "d1"], "query_columns": {"text": ["toy story", "toy story 2"]}}
    >>> queries = QuerySet.from_arrays([[0.0], [0.0]], [1, 1], **names)
    >>> texts_like(QueryMemory.of(queries[1]), queries[0])
    ['toy story 2']
    """
    return list(dict.fromkeys(str(memory.texts[place]) for place in _like(memory, memory.asked(query), least)[0]))


def _like(memory: QueryMemory, asked: Asked, least: float) -> tuple[list[int], set[int]]:
    """Return the positions of the kin of one query, most similar first, and which of them are kin by meaning alone.

    Their similarity by letters is above `least`, or their cosine above one half.
    """
    by_letters, by_meaning = (
        {place: value for place, value in zip(near[0][0].tolist(), near[1][0].tolist(), strict=True) if value > bound}
        for near, bound in ((memory.nearest(asked), least), (memory.nearest_in_meaning(asked), _LEAST_COSINE))
    )
    both = {
        place: max(by_letters.get(place, 0.0), by_meaning.get(place, 0.0)) for place in {**by_letters, **by_meaning}
    }
    return sorted(both, key=lambda place: -both[place]), set(both) - set(by_letters)


def _cells_of(memory: QueryMemory, name: str, place: int, targets: np.ndarray) -> Iterator[tuple[int, float]]:
    """Yield the candidates that a known query has a cell for, and the good part of it."""
    cells = memory.cells[name]
    own = slice(cells.offsets[place], cells.offsets[place + 1])
    known = dict(zip(cells.target[own].tolist(), cells.good[own].tolist(), strict=True))
    for row, target in enumerate(targets.tolist()):
        if target in known:
            yield row, known[target]


def listed(texts: list[str], note: str = "") -> str:
    """Return the first text with a note, and how many there are besides."""
    others = len(texts) - 1
    return f"*{texts[0]}*{note}" + (f" and {others} more" if others else "")


def _queries(number: int) -> str:
    return f"{number} {'query' if number == 1 else 'queries'}"
