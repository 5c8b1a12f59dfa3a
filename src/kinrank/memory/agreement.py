"""How often two questions that are so alike chose the same: a curve over both similarities, learned per memory.

The log-odds of agreement are a polynomial of the similarity of letters, the cosine if both questions have a vector, and
whether numbers, symbols or negations differ. Its coefficients are `PRIORS`, one for each kind of similarity. A memory
learns a level and a slope, which the log-odds are shifted and multiplied by: from the questions that it compares, with
the prior worth `PRIOR_AMOUNT` of them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64, Int64
from kinrank.kin.encoders.ngrams import words_of

LETTERS, MEANING, STATIC = "letters", "meaning", "static"
PRIORS: dict[str, tuple[float, ...]] = {
    LETTERS: (-5.0, 12.8, -5.8, -0.1),
    MEANING: (-3.57, 0.0, 4.56, 1.97, -0.10),
    STATIC: (-2.92, 1.12, 4.02, 0.15, -0.15),
}
"""For letters alone: constant, letters, letters squared, differ. With an encoder: constant, letters, cosine, cosine
squared, differ. Printed by ``python -m benchmarks answers --part prior``.
"""
PRIOR_AMOUNT = 50.0
"""How many compared questions the prior counts as."""
MOST = 3.0
"""The log-odds of questions that are the same, and of others at most."""
_BINS = np.linspace(-8.0, MOST, 49)
_MIDDLES = (_BINS[1:] + _BINS[:-1]) / 2
_STEPS = 12  # of Newton's method
_NEGATION = re.compile(r"n['’]t\b")
_NEGATIONS = frozenset(["no", "not", "never", "without", "none", "cannot", "nobody", "nothing", "neither", "nor"])
_TELLS = re.compile(r"[^\W_]*[\d+#<>=%$!-]")


def marks(text: str) -> int:
    """Return a number that differs for texts whose numbers, symbols or negations differ; 0 without any.

    Examples
    --------
    >>> marks("C++ in 2.1") == marks("what is in c++ 2.1"), marks("C++ in 2.1") == marks("C# in 2.1")
    (True, False)
    >>> marks("with sugar"), marks("without sugar") == marks("no sugar")
    (0, False)
    """
    found = {word for word in words_of(text) if word in _NEGATIONS or _TELLS.match(word)}
    if _NEGATION.search(text.casefold()):
        found.add("not")
    if not found:
        return 0
    return int.from_bytes(hashlib.blake2b(" ".join(sorted(found)).encode(), digest_size=8).digest(), "big", signed=True)


@dataclass(frozen=True, eq=False)
class Agreement:
    """The log-odds with which questions agree, by how alike they are.

    Parameters
    ----------
    kind
        `MEANING` or `STATIC`, after the encoder of the vectors.
    letters, vectors
        Level and slope for pairs of which one has no vector, and for the others.

    Examples
    --------
    >>> alike = np.array([0.3, 0.9])
    >>> start = Agreement()
    >>> pairs = alike, np.full(2, np.nan), np.zeros(2, dtype=bool)  # no vectors, and no numbers differ
    >>> [round(each, 2) for each in start(*pairs).tolist()]
    [-1.68, 1.82]
    >>> never = start.learned(*pairs, same=np.zeros(2), weight=np.full(2, 500.0))
    >>> bool((never(*pairs) < -1.5).all())
    True
    """

    kind: str = MEANING
    letters: tuple[float, float] = (0.0, 1.0)
    vectors: tuple[float, float] = (0.0, 1.0)

    def __call__(self, letters: Float64, cosine: Float64, differ: NDArray[np.bool_]) -> Float64:
        """Return the log-odds for pairs of questions; a cosine that is not known is NaN."""
        prior, known = _prior(self.kind, letters, cosine, differ)
        level = np.where(known, self.vectors[0], self.letters[0])
        slope = np.where(known, self.vectors[1], self.letters[1])
        return np.minimum(level + slope * prior, MOST)

    def learned(
        self, letters: Float64, cosine: Float64, differ: NDArray[np.bool_], same: Float64, weight: Float64
    ) -> Agreement:
        """Return what pairs of questions teach, each with how much of what they chose is the same."""
        prior, known = _prior(self.kind, letters, cosine, differ)
        by_letters = _prior(self.kind, letters, np.full(len(letters), np.nan), differ)[0]
        return Agreement(
            self.kind,
            _level_and_slope(by_letters, same, weight),
            _level_and_slope(prior[known], same[known], weight[known]),
        )


def _prior(
    kind: str, letters: Float64, cosine: Float64, differ: NDArray[np.bool_]
) -> tuple[Float64, NDArray[np.bool_]]:
    """Return the log-odds by the prior, and which pairs have a cosine."""
    known = np.isfinite(cosine)
    a, b, c, d = PRIORS[LETTERS]
    odds = a + letters * (b + letters * c) + d * differ
    if known.any():
        a, b, c, d, e = PRIORS[kind]
        near = np.where(known, cosine, 0.0)
        odds = np.where(known, a + b * letters + near * (c + near * d) + e * differ, odds)
    return np.asarray(odds, dtype=np.float64), known


def _level_and_slope(prior: Float64, same: Float64, weight: Float64) -> tuple[float, float]:
    """Return the most likely level and slope; the prior has seen its log-odds come true at each bin alike."""
    if not len(prior):
        return 0.0, 1.0
    bins = np.clip(np.searchsorted(_BINS, prior) - 1, 0, len(_MIDDLES) - 1)
    seen = PRIOR_AMOUNT / len(_MIDDLES)
    amount = np.bincount(bins, weight, len(_MIDDLES)) + seen
    good = np.bincount(bins, weight * same, len(_MIDDLES)) + seen / (1.0 + np.exp(-_MIDDLES))
    level, slope = 0.0, 1.0
    for _ in range(_STEPS):
        p = 1.0 / (1.0 + np.exp(-level - slope * _MIDDLES))
        error, curvature = good - amount * p, amount * p * (1.0 - p) + 1e-9
        gradient = np.array([error.sum(), error @ _MIDDLES])
        first, second = curvature.sum(), curvature @ _MIDDLES
        step = np.linalg.solve([[first, second], [second, curvature @ _MIDDLES**2]], gradient)
        level, slope = level + float(np.clip(step[0], -2, 2)), slope + float(np.clip(step[1], -1, 1))
    return level, max(slope, 0.1)


def weights_of_pairs(question: Int64, sole: Int64, people: Float64, likely: Float64, most: float) -> Float64:
    """Return how much each compared pair counts.

    Parameters
    ----------
    question
        The question of each pair. Its pairs sum to one if many people stand behind all of them.
    sole
        Who alone stands behind the question; a negative number if that is nobody.
    people
        How far the people behind both questions are to be believed, from 0 to 1.
    likely
        How likely both are to agree by the prior: likely kin are what is to be learned about.
    most
        How many questions of one person count in full; more of them share that.
    """
    _, first, of = np.unique(question, return_index=True, return_inverse=True)
    _, whose, asked = np.unique(sole[first], return_inverse=True, return_counts=True)
    share = np.where(sole[first] < 0, 1.0, np.minimum(1.0, most / asked[whose]))
    return np.asarray(people * share[of] * likely / np.bincount(of, likely)[of], dtype=np.float64)
