"""The built-in encoder: character n-grams, weighted by TF-IDF, reduced by a truncated SVD."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator
from sklearn.utils.extmath import randomized_svd

from kinrank.arrays import Float32, Int64, State
from kinrank.errors import DataError, ParameterError
from kinrank.kin.encoders.base import Encoder, normalized

SHORTEST, LONGEST = 3, 5
"""Lengths of n-grams, in characters."""
_TEXTS_PER_COMPONENT = 8
# Points and commas but in numbers, hyphens but before a number, and other punctuation but + # < > = % $.
_SEPARATORS = re.compile(r"(?<!\d)[.,]|[.,](?!\d)|(?<=[^\W_])-|-(?!\d)|!(?!=)|[\"&'()*/:;?@\[\\\]^_`{|}~“”„‘’«»–—…]")


class NgramEncoder(Encoder, BaseEstimator):
    """Vectors from the character n-grams of a text, learned from the texts of the training queries.

    Needs no download, works for every language and script, and tolerates typing errors, since most n-grams survive
    them. It knows nothing about meaning: synonyms are near each other only if training queries share their letters.

    Parameters
    ----------
    n_components : int
        Dimensions of a vector, at most; an eighth of the number of different texts if that is less.
    shortest, longest : int
        Lengths of the n-grams, in characters.
    max_ngrams : int
        How many n-grams are kept: those that occur in most texts.
    log : sequence of str
        Texts of further queries, such as a query log, to learn from. They need no judgments.

    Examples
    --------
    >>> encoder = NgramEncoder().fit(["iron man", "iron man 2", "spider man", "spiderman", "toy story"])
    >>> iron, other, toy = encoder.encode(["Iron  Man", "iron-man", "toy storry"])
    >>> bool(iron @ other > iron @ toy)
    True
    """

    def __init__(
        self,
        n_components: int = 256,
        *,
        shortest: int = SHORTEST,
        longest: int = LONGEST,
        max_ngrams: int = 20_000,
        log: Sequence[str] = (),
    ) -> None:
        self.n_components = n_components
        self.shortest = shortest
        self.longest = longest
        self.max_ngrams = max_ngrams
        self.log = log

    @property
    def spec(self) -> str:
        """The text from which `make_encoder` makes this encoder again."""
        defaults = NgramEncoder().get_params()
        settings_of_vectors = {name: value for name, value in self.get_params().items() if name != "log"}
        changed = [f"{name}={value}" for name, value in settings_of_vectors.items() if value != defaults[name]]
        settings = ", ".join(changed)
        return f"ngrams({settings})" if settings else "ngrams"

    @property
    def is_fitted(self) -> bool:
        """Whether n-grams were learned."""
        return hasattr(self, "components_")

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn which n-grams there are and how they occur together, from these texts and the log."""
        if not 1 <= self.shortest <= self.longest:
            raise ParameterError(f"shortest must be from 1 to longest, got {self.shortest} and {self.longest}")
        if self.n_components < 1 or self.max_ngrams < 1:
            raise ParameterError(
                f"n_components and max_ngrams must be at least 1, got {self.n_components} and {self.max_ngrams}"
            )
        unique = sorted({*map(fold, texts), *map(fold, self.log)} - {""})
        if not unique:
            raise DataError("there is no text to learn n-grams from: all query texts are empty")
        counted = [Counter(self._ngrams(text)) for text in unique]
        frequency = Counter(ngram for counts in counted for ngram in counts)
        # An n-gram of one text alone relates it to no other, but if all are of that kind some must be kept.
        shared = [ngram for ngram, count in frequency.items() if count > 1] or list(frequency)
        vocabulary = sorted(shared, key=lambda ngram: (-frequency[ngram], ngram))[: self.max_ngrams]
        self._set_vocabulary(vocabulary)
        n = len(unique)
        self.idf_: Float32 = np.array(
            [math.log((1 + n) / (1 + frequency[g])) + 1 for g in vocabulary], dtype=np.float32
        )
        table = self._weighted(counted)
        # Directions that few texts support are noise.
        rank = min(self.n_components, max(2, n // _TEXTS_PER_COMPONENT), *table.shape)
        _, _, directions = randomized_svd(table, rank, n_oversamples=32, n_iter=10, random_state=0)
        self.components_: Float32 = np.ascontiguousarray(directions.T, dtype=np.float32)
        return self

    def encode(self, texts: Sequence[str]) -> Float32:
        """Return one vector per text; zeros if none of its n-grams is known."""
        if not self.is_fitted:
            raise ParameterError("this NgramEncoder is not fitted: call fit with the texts of training queries first")
        vectors = np.zeros((len(texts), self.components_.shape[1]), dtype=np.float32)
        for row, text in enumerate(texts):
            columns, weights = self._row(Counter(self._ngrams(fold(text))))
            if len(columns):
                vectors[row] = weights @ self.components_[columns]
        return normalized(vectors)

    def get_state(self) -> State:
        """Return the n-grams, their weights and the components, and the vector of a probe text."""
        arrays = {"ngrams": np.array(list(self._column)), "idf": self.idf_, "components": self.components_}
        return super().get_state() | arrays

    def set_state(self, state: State) -> Self:
        """Restore what was learned."""
        self._set_vocabulary(state["ngrams"].tolist())
        self.idf_, self.components_ = np.asarray(state["idf"]), np.asarray(state["components"])
        return super().set_state(state)

    def _set_vocabulary(self, ngrams: list[str]) -> None:
        self._column = {ngram: column for column, ngram in enumerate(ngrams)}

    def _ngrams(self, folded: str) -> list[str]:
        return ngrams_of(folded, self.shortest, self.longest)

    def _row(self, counts: Counter[str]) -> tuple[Int64, Float32]:
        """Return the columns of a text's known n-grams and their weights, of unit length."""
        column_counts = [
            (column, count) for ngram, count in counts.items() if (column := self._column.get(ngram)) is not None
        ]
        columns = np.array([column for column, _ in column_counts], dtype=np.int64)
        weights = np.array([1 + math.log(count) for _, count in column_counts], dtype=np.float32) * self.idf_[columns]
        length = np.linalg.norm(weights)
        return columns, weights / length if length > 0 else weights

    def _weighted(self, counted: list[Counter[str]]) -> csr_array:
        rows = [self._row(counts) for counts in counted]
        starts = np.append(0, np.cumsum([len(columns) for columns, _ in rows]))
        columns = np.concatenate([columns for columns, _ in rows])
        weights = np.concatenate([weights for _, weights in rows])
        return csr_array((weights, columns, starts), shape=(len(rows), len(self._column)))


def fold(text: str) -> str:
    """Return a text without differences of case, width and spacing.

    Examples
    --------
    >>> fold("  Ｉｒｏｎ   MAN ")
    'iron man'
    """
    if text.isascii():
        return " ".join(text.lower().split())
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def words_of(text: str) -> list[str]:
    """Return the words of a text, folded, with the symbols that make a difference.

    These stand in words (C++), numbers (-5, 2.1, 50%) and comparisons (>= 10). Other punctuation separates words.

    Examples
    --------
    >>> words_of("Is C++ 2.1 faster than C# (-5%), if n >= 10?")
    ['is', 'c++', '2.1', 'faster', 'than', 'c#', '-5%', 'if', 'n', '>=', '10']
    >>> words_of("Iron-Man, Part 2.")
    ['iron', 'man', 'part', '2']
    """
    return _SEPARATORS.sub(" ", fold(text)).split()


def ngrams_of(folded: str, shortest: int = SHORTEST, longest: int = LONGEST) -> list[str]:
    """Return the n-grams of a text that was folded; spaces around it mark its beginning and its end.

    Examples
    --------
    >>> ngrams_of("up")
    [' up', 'up ', ' up ']
    """
    padded = f" {folded} " if folded else ""  # so that texts of one character have n-grams, too
    return [
        padded[start : start + length]
        for length in range(shortest, longest + 1)
        for start in range(len(padded) - length + 1)
    ]
