"""What each ingredient of a `KinRanker` adds to the score of each document."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64
from kinrank.data.queryset import QuerySet
from kinrank.rankers.local.explanation import Explanation

if TYPE_CHECKING:
    from kinrank.rankers.kin.ranker import KinRanker

PARTS = ("trees: features", "trees: standing", "trees: local score", "local", "global")


@dataclass(frozen=True, eq=False)
class KinExplanation:
    """How one query came to its ranking.

    Attributes
    ----------
    qid
        The query.
    kin : Explanation
        The judged queries nearest to it, how far they are, and the weights learned from them beside the global ones.
    has_kin : bool
        Whether any of them is near enough; if not, its weights are the global ones.
    parts : tuple of str
        The ingredients. What the trees say is told apart by what they looked at: the features themselves, where they
        stand among the query's candidates, or the score of the local model.
    contributions : float64 array of shape (documents, parts)
        What each ingredient adds to each document's score; a row adds up to the score. Each ingredient has mean 0
        over the query, so a positive number lifts the document above the query's average.
    doc_id : array, or None
        The documents, where they have ids.
    """

    qid: Any
    kin: Explanation
    has_kin: bool
    parts: tuple[str, ...]
    contributions: Float64
    doc_id: NDArray[Any] | None

    @property
    def scores(self) -> Float64:
        """The score of each document."""
        total: Float64 = self.contributions.sum(axis=1)
        return total

    @property
    def shares(self) -> dict[str, float]:
        """How much of the differences between documents each ingredient makes: its part of the summed magnitudes."""
        sizes = np.abs(self.contributions).sum(axis=0)
        total = sizes.sum() or 1.0
        return dict(zip(self.parts, (sizes / total).tolist(), strict=True))

    def __str__(self) -> str:
        shares = ", ".join(f"{part} {share:.0%}" for part, share in self.shares.items() if share >= 0.005)
        lines = [str(self.kin), f"  the order comes from: {shares or 'nothing, all documents tie'}"]
        if not self.has_kin:
            lines.insert(1, "  no judged query is near: the global model stands in for its own")
        for document in np.argsort(-self.scores, kind="stable")[:3]:
            name = document if self.doc_id is None else self.doc_id[document]
            said = ", ".join(
                f"{part} {value:+.2f}"
                for part, value in zip(self.parts, self.contributions[document], strict=True)
                if abs(value) >= 0.005
            )
            lines.append(f"  document {name}: {self.scores[document]:+.2f} = {said or 'nothing'}")
        return "\n".join(lines)


def explain_kin(
    ranker: KinRanker, queries: QuerySet, shared: Float64, table: Float32 | None, has_kin: NDArray[np.bool_]
) -> list[KinExplanation]:
    """One explanation per query, from the shared scores of trees, local and global model."""
    contributions = np.hstack([_tree_parts(ranker, queries, shared[:, 0], table), shared[:, 1:]])
    explained = []
    for query, kin in enumerate(ranker.local_.explain(queries)):
        rows = slice(queries.offsets[query], queries.offsets[query + 1])
        doc_id = None if queries.doc_id is None else queries.doc_id[rows]
        near = bool(has_kin[query])
        told = kin if near else replace(kin, weights=kin.global_weights)
        explained.append(KinExplanation(kin.qid, told, near, PARTS, contributions[rows], doc_id))
    return explained


def _tree_parts(ranker: KinRanker, queries: QuerySet, trees: Float64, table: Float32 | None) -> Float64:
    """The trees' shared score by what they looked at.

    SHAP values add up to the raw score; shared scores are raw ones shifted and stretched query by query, so the same
    stretch brings the values to shared ones, and their means, which rank nothing, are taken off.
    """
    parts = np.zeros((queries.n_rows, 3))
    if table is None or not trees.any():
        return parts
    each = np.mean([model.contributions(table) for model in ranker.members_], axis=0)
    n = queries.n_features
    families = np.column_stack([each[:, :n].sum(1), each[:, n : 3 * n].sum(1), each[:, 3 * n : -1].sum(1)])
    for start, stop in zip(queries.offsets[:-1], queries.offsets[1:], strict=True):
        rows = slice(start, stop)
        centered = families[rows] - families[rows].mean(axis=0)
        spread = np.abs(centered.sum(axis=1)).max(initial=0.0)
        if spread > 0:
            parts[rows] = centered * (np.abs(trees[rows]).max() / spread)
    return parts
