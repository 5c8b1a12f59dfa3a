"""How alike two query texts are: by their character n-grams, as the built-in encoder cuts them.

A model that encodes texts knows more about meaning, but its similarities change with every fit, and with them what a
rule does. N-grams of the texts alone do not, and they are the same for every model of a service.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from kinrank.describe.encoders.ngrams import fold, ngrams_of

ALIKE = 0.5
"""Queries are alike from this similarity on."""


class SimilarTexts:
    """Finds the texts among some that are like a given one.

    The similarity is the cosine of the sets of n-grams of 3 to 5 characters, without regard to case and spacing: 1 for
    equal texts, 0 for texts without a common n-gram.

    Parameters
    ----------
    texts
        The texts to find.

    Examples
    --------
    >>> films = SimilarTexts(["iron man", "toy story"])
    >>> {text: {films.texts[place]: round(alike, 2) for place, alike in films.like(text).items()}
    ...     for text in ("Iron  Man", "iron man 2", "iron mn", "the man")}
    {'Iron  Man': {'iron man': 1.0}, 'iron man 2': {'iron man': 0.88}, 'iron mn': {'iron man': 0.62}, 'the man': {}}
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self._sizes: list[int] = []
        self._places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            ngrams = _ngrams(text)
            self._sizes.append(len(ngrams))
            for ngram in ngrams:
                self._places.setdefault(ngram, []).append(place)

    def like(self, text: str, least: float = ALIKE) -> Mapping[int, float]:
        """Return the positions of the texts that are alike, with their similarities."""
        ngrams = _ngrams(text)
        shared: dict[int, int] = {}
        for ngram in ngrams:
            for place in self._places.get(ngram, ()):
                shared[place] = shared.get(place, 0) + 1
        return dict(self._alike(shared, len(ngrams), least))

    def _alike(self, shared: Mapping[int, int], size: int, least: float) -> Iterator[tuple[int, float]]:
        for place, count in shared.items():
            alike = count / math.sqrt(size * self._sizes[place])
            if alike >= least:
                yield place, alike


def _ngrams(text: str) -> set[str]:
    return set(ngrams_of(fold(text)))
