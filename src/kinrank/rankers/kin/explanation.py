"""What each ingredient of a `KinRanker` adds to the score of each document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.learn.lambdamart import LambdaMART
from kinrank.memory._reasons import Reasons
from kinrank.memory.evidence import Totals
from kinrank.rankers._local.explanation import Explanation, ordinal, ranks
from kinrank.rankers.kin._trees import TreeView

_SHOWN = 10
PARTS = ("trees: features", "trees: standing", "trees: local score", "trees: memory", "local", "global", "base")


@dataclass(frozen=True, eq=False)
class KinExplanation(Explanation):
    """How one query was ranked: its neighbors and weights, and what each ingredient adds to each score."""

    has_kin: bool
    """Whether a judged query is near enough. If not, `weights` are the global ones."""
    parts: tuple[str, ...]
    """The ingredients. The trees' contribution is split by what they look at: the features, their standing among the
    query's candidates, and the score of the local model.
    """
    reasons: list[str]
    """In words, what memory knows of each document, and if it moved, what speaks for that; empty if nothing."""
    rank: Int64
    rank_without: Int64
    """The rank of each document, from 1, and that without memory; shape (documents,)."""
    looks: Float64
    choices: Float64
    """How often people looked at each document for this query, and how often they chose it; shape (documents,)."""
    held_back: Float64
    """How many of these choices do not lift the document, because too few people made them; shape (documents,)."""
    contributions: Float64
    """What each ingredient adds to each document's score; a row sums to the score before what people chose for this
    query. Each ingredient has mean 0 over the query, so a positive number lifts the document above the query's average;
    shape (documents, parts).
    """

    @property
    def scores(self) -> Float64:
        """The score of each document, before what people chose for this query."""
        total: Float64 = self.contributions.sum(axis=1)
        return total

    @property
    def shares(self) -> dict[str, float]:
        """The share of each ingredient in the summed magnitudes of all contributions."""
        sizes = np.abs(self.contributions).sum(axis=0)
        total = sizes.sum() or 1.0
        return dict(zip(self.parts, (sizes / total).tolist(), strict=True))

    def chosen(self, row: int) -> str:
        """Return in words how often people chose a document, and its rank without that; empty if nobody looked."""
        yet = ", by too few people to lift it yet" if round(self.held_back[row]) > 0 else ""
        counted = _counted(self.looks[row], self.choices[row])
        return self._moved(f"{counted} for this query{yet}", row) if counted else ""

    def judged(self, row: int) -> str:
        """Return in words how a document was judged for similar queries, and its rank without that."""
        return self._moved(self.reasons[row], row)

    def why(self, row: int) -> str:
        """Return in words what moved a document: what people chose for this query, or how it was judged for others.

        A document that nobody chose can fall for that, but not rise.
        """
        rose = self.rank[row] < self.rank_without[row]
        chosen = "" if rose and self.choices[row] < 0.5 else self.chosen(row)
        return chosen or self.judged(row)

    def _moved(self, reason: str, row: int) -> str:
        without = self.rank_without[row]
        moved = reason and without != self.rank[row]
        return f"{reason}; without that it would be {ordinal(without)}" if moved else reason

    def _titled(self, row: int) -> str:
        name = self.document_name(row)
        return f"document {name}" if self.doc_id is not None and name == str(self.doc_id[row]) else name

    def __str__(self) -> str:
        shares = ", ".join(f"{part} {share:.0%}" for part, share in self.shares.items() if share >= 0.005)
        lines = [super().__str__(), f"  the order comes from: {shares or 'nothing, all documents tie'}"]
        if not self.has_kin:
            lines.insert(1, "  no judged query is near: the global model replaces its own")
        best = np.argsort(self.rank)[:_SHOWN].tolist()
        shown = [row for row in best if self.rank[row] == 1 or self.rank[row] != self.rank_without[row]]
        told = [(row, self.why(row)) for row in shown]
        moved = [f"  {ordinal(self.rank[row])}: {self.document_name(row)}, {words}" for row, words in told if words]
        lines = [f"{self.heading}: what was chosen for it and for queries like it", *moved, *lines] if moved else lines
        for document in np.argsort(-self.scores, kind="stable")[:3]:
            added = ", ".join(
                f"{part} {value:+.2f}"
                for part, value in zip(self.parts, self.contributions[document], strict=True)
                if abs(value) >= 0.005
            )
            lines.append(f"  {self._titled(int(document))}: {self.scores[document]:+.2f} = {added or 'nothing'}")
        return "\n".join(lines)


def explain_kin(
    neighbors: Sequence[Explanation],
    queries: QuerySet,
    blended: Float64,
    trees: Float64,
    has_kin: NDArray[np.bool_],
    scores: Float64,
    without: Float64,
    reasons: Sequence[Sequence[Reasons]],
    own: Totals,
) -> list[KinExplanation]:
    """Explain each query.

    `blended` has what trees, local and global model add to each score, `trees` the trees' column as `split_trees`
    splits it, `without` the scores without memory, and `own` what people looked at and chose.
    """
    few = own.few or Totals.zeros(queries.n_rows)
    contributions = np.hstack([trees, blended[:, 1:]])
    explained = []
    for query, near in enumerate(neighbors):
        rows = slice(queries.offsets[query], queries.offsets[query + 1])
        rank, rank_without = ranks(scores[rows]), ranks(without[rows])
        explained.append(
            KinExplanation(
                **{**vars(near), "weights": near.weights if has_kin[query] else near.global_weights},
                has_kin=bool(has_kin[query]),
                parts=PARTS,
                reasons=[
                    known.why(None if now == before else bool(now < before))
                    for known, now, before in zip(reasons[query], rank, rank_without, strict=True)
                ],
                rank=rank,
                rank_without=rank_without,
                looks=own.looks[rows],
                choices=own.choices[rows],
                held_back=few.choices[rows],
                contributions=contributions[rows],
            )
        )
    return explained


def _counted(looks: float, choices: float) -> str:
    """Return looks and choices in words; empty if there is no choice and less than a look. Looks are expected ones.

    Examples
    --------
    >>> _counted(83.2, 66.0), _counted(0.1, 1.0), _counted(0.6, 0.0)
    ('chosen 66 times in 83 looks', 'chosen 1 time in 0.1 looks', '')
    >>> _counted(12.1, 0.0)
    'never chosen in 12 looks'
    """
    times = max(round(choices), 0)
    if not times and looks < 1:
        return ""
    looked = f"{looks:.0f}" if looks >= max(times, 1) - 0.5 else f"{looks:.1f}".removesuffix(".0")
    seen = f"in {looked} {'look' if looked == '1' else 'looks'}"
    return f"chosen {times} {'time' if times == 1 else 'times'} {seen}" if times else f"never chosen {seen}"


def split_trees(
    members: Sequence[LambdaMART], queries: QuerySet, blended: Float64, table: Float32 | None, view: TreeView
) -> Float64:
    """Split the trees' part of each score by what they look at: features, standing, local score, memory.

    SHAP values add up to the raw score. Blended scores are raw ones shifted and stretched per query, so the same
    stretch applies to the values; their means, which rank nothing, are subtracted.
    """
    parts = np.zeros((queries.n_rows, 4))
    if table is None or not blended.any():
        return parts
    shap_values = np.mean([model.contributions(table) for model in members], axis=0)
    ends = queries.n_features, *view.ends(queries.n_features), table.shape[1]
    starts = 0, *ends[:-1]
    families = np.column_stack([shap_values[:, a:b].sum(1) for a, b in zip(starts, ends, strict=True)])
    for start, stop in zip(queries.offsets[:-1], queries.offsets[1:], strict=True):
        rows = slice(start, stop)
        centered = families[rows] - families[rows].mean(axis=0)
        spread = np.abs(centered.sum(axis=1)).max(initial=0.0)
        if spread > 0:
            parts[rows] = centered * (np.abs(blended[rows]).max() / spread)
    return parts
