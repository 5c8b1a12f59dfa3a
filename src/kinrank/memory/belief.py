"""How likely a document is the one: by those who asked something alike, and else by the place that a retriever gave it.

The formula is in `Memory`. A kin is a known question that is like the one that is asked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kinrank.arrays import Float64, Int64
from kinrank.memory.snapshot import Cells

SHARPNESS = 2.0
"""The power of a kin's odds of agreement with which it counts among the others."""
CAUTION = 1.5
"""The power of a kin's agreement with which it counts next to the retriever."""
FIRST, FALL, FOUND = 0.3, 0.7, 0.005
"""How likely the first hit of a retriever is right, how fast that falls with the place, and of any document."""
SCORED = 0.3
"""How much likelier, in logarithms, the highest score of a retriever makes a hit than the lowest."""
_DOUBT = 0.5  # votes of kin at which half of them being against a document costs it a third
_TENTHS = 10.0


@dataclass(frozen=True, eq=False)
class Belief:
    """What kin say of documents.

    Attributes
    ----------
    documents
        The numbers of documents, ascending.
    said
        How much kin say for each, next to how likely the retriever holds it.
    share
        The share of the votes of kin that each has.
    doubt
        What is left of its score after votes against it, from 0 to 1.
    parts
        What each cell is of the share of its document.
    """

    documents: Int64
    said: Float64
    share: Float64
    doubt: Float64
    parts: Float64

    @property
    def strength(self) -> float:
        """How much of the whole is the kin's to say, next to a hit that the retriever puts first."""
        total = float(self.said.sum())
        return total / (total + FIRST + FOUND)

    @classmethod
    def of(cls, cells: Cells, log_odds: Float64, people: float) -> Belief:
        """Return what kin say, given the log-odds with which each agrees with the question.

        Examples
        --------
        >>> cells = Cells(np.array([0, 1]), np.array([7, 8]), np.array([10.0, 10.0]), np.array([10.0, 10.0]))
        >>> belief = Belief.of(cells, np.array([2.0, 0.0]), people=1.0)
        >>> belief.share.round(2).tolist(), belief.said.round(2).tolist()
        ([0.98, 0.02], [0.58, 0.01])
        """
        documents, which = np.unique(cells.document, return_inverse=True)
        if not len(documents):
            return cls(documents, np.empty(0), np.empty(0), np.empty(0), np.empty(0))
        agree = 1.0 / (1.0 + np.exp(-log_odds))
        votes = np.bincount(cells.kin, cells.good, len(log_odds)) / _TENTHS
        some = votes > 0.0
        believed = votes / np.maximum(votes + people, 1e-9)  # for how many people voted
        weight = np.zeros(len(log_odds))
        if some.any():
            odds = log_odds[some] + np.log(believed[some])
            weight[some] = np.exp(SHARPNESS * (odds - odds.max()))
            weight /= weight.sum()
        parts = weight[cells.kin] * cells.good / np.maximum(votes[cells.kin], 1e-9) / _TENTHS
        share = np.bincount(which, parts, len(documents)).astype(np.float64)
        counted = agree[cells.kin] / np.maximum(cells.amount + _TENTHS * people, 1e-9)
        good = np.bincount(which, counted * cells.good, len(documents))
        amount = np.bincount(which, counted * cells.amount, len(documents))
        said = float((agree**CAUTION * believed).sum()) * share
        return cls(documents, said, share, (_DOUBT + good) / (_DOUBT + amount), parts)

    def scores(self, documents: Int64, prior: Float64) -> Float64:
        """Return the score of some documents, given how likely each is by the retriever."""
        at = np.minimum(np.searchsorted(self.documents, documents), max(len(self.documents) - 1, 0))
        if not len(self.documents):
            return prior
        known = self.documents[at] == documents
        said, doubt = np.where(known, self.said[at], 0.0), np.where(known, self.doubt[at], 1.0)
        return np.asarray((prior + said) * doubt, dtype=np.float64)


def likely_by_place(prior: Float64) -> Float64:
    """Return how likely hits are, by the columns *rank* (minus the logarithm of the place) and *score* (0 to 1)."""
    rank, score = prior.T
    return np.asarray((FOUND + FIRST * np.exp(FALL * rank)) * np.exp(SCORED * (score - 1.0)), dtype=np.float64)
