"""What training from disk needs from a ranker."""

from __future__ import annotations

from typing import Any, Protocol, Self

from numpy.typing import NDArray

from kinrank.data.blocks import Blocks
from kinrank.data.id_hashes import IdHashes
from kinrank.data.queryset import QuerySet
from kinrank.data.textfile import PathLike
from kinrank.parallel import Executor
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.kin.trees import MemberTraining, Progress
from kinrank.scale.folder import JobFolder
from kinrank.scale.sum_tree import QueryFilter, StoredQueries


class Streaming(Protocol):
    """A ranker that trains from disk: one part learns from sums over cells, the others from some of the queries."""

    n_features_in_: int
    feature_names_: tuple[str, ...]
    learned_from_: IdHashes | None

    @property
    def local_(self) -> CellRanker:
        """The part that learns from sums over cells, fitted."""
        ...

    def sized_for(self, blocks: Blocks, n_queries: int) -> Self:
        """Return an unfitted copy with settings that suit the size of the data, about `n_queries` queries."""
        ...

    def cell_part(self) -> CellRanker:
        """Return the part that learns from sums over cells, not fitted."""
        ...

    def open_blocks(self, blocks: Blocks, executor: Executor, store: JobFolder) -> Blocks:
        """Return the queries as the ranker reads them."""
        ...

    def read_alike(self, blocks: Blocks) -> Blocks:
        """Return further queries as the ranker, which is fitted, reads them."""
        ...

    def tree_sample(self, n_queries: int) -> QueryFilter | None:
        """Return which queries the other parts learn from; None if there are no other parts."""
        ...

    def learn_from_cells(
        self,
        cells: CellRanker,
        kept: StoredQueries,
        store: JobFolder,
        executor: Executor,
        progress: Progress,
        train_member: MemberTraining | None,
    ) -> Self:
        """Learn the other parts, given the sums of all queries."""
        ...

    def with_cells(self, cells: CellRanker, unseen: NDArray[Any]) -> Self:
        """Return a copy with other sums; the other parts stay."""
        ...

    def save(self, path: PathLike, *, examples: QuerySet | None = None, judgments_through: int | None = None) -> None:
        """Write a model folder."""
        ...
