"""What a job keeps of judged queries for memory: texts, candidates and grades, without features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Int64, State
from kinrank.data.blocks import Sample
from kinrank.data.queryset import QuerySet
from kinrank.data.split import groups_of
from kinrank.memory.columns import Judged
from kinrank.rankers.kin._trees import TreeSample
from kinrank.store import nest, unnest


@dataclass(frozen=True, eq=False)
class KnownQueries:
    """Queries that memory keeps, in the order of the data."""

    judged: Judged
    qid: NDArray[np.str_]
    sampled: NDArray[np.bool_]
    """Those that trees learn from."""
    group: NDArray[Any] | None
    time: NDArray[Any] | None

    def __len__(self) -> int:
        return len(self.qid)

    def take(self, places: Int64) -> KnownQueries:
        """Return some of them."""
        group, time = (None if each is None else each[places] for each in (self.group, self.time))
        return KnownQueries(self.judged.take(places), self.qid[places], self.sampled[places], group, time)

    @classmethod
    def concat(cls, parts: Sequence[KnownQueries]) -> KnownQueries:
        """Join them."""
        groups = [part.group for part in parts if part.group is not None]
        times = [part.time for part in parts if part.time is not None]
        return cls(
            Judged.concat([part.judged for part in parts]),
            np.concatenate([part.qid for part in parts]),
            np.concatenate([part.sampled for part in parts]),
            np.concatenate(groups) if groups else None,
            np.concatenate(times) if times else None,
        )

    def get_state(self) -> State:
        """Return all arrays."""
        given = {"group": self.group, "time": self.time}
        columns = {name: values for name, values in given.items() if values is not None}
        return nest(judged=self.judged.get_state()) | {"qid": self.qid, "sampled": self.sampled, **columns}

    @classmethod
    def from_state(cls, state: State) -> KnownQueries:
        """Restore what `get_state` returned."""
        judged = Judged.from_state(unnest(state, "judged"))
        return cls(judged, state["qid"], state["sampled"], state.get("group"), state.get("time"))


@dataclass(frozen=True)
class KnownSample:
    """Chooses the queries that memory keeps: those that trees learn from, and about a share of all."""

    trees: TreeSample
    share: float
    keys: tuple[str, ...]
    time_column: str | None
    meaning: bool
    """Whether queries have vectors by which kin are found, too."""

    def of(self, queries: QuerySet) -> KnownQueries:
        """Return what memory needs of the chosen queries."""
        sampled = self.trees.chosen(queries)
        chosen = sampled | Sample((), self.share).chosen(len(queries))
        some = queries if chosen.all() else queries[chosen]
        group, time = (
            None if column is None else groups_of(some, column)
            for column in (self.trees.group_column, self.time_column)
        )
        judged = Judged.of(some, self.keys, meaning=self.meaning)
        return KnownQueries(judged, some.qid.astype(np.str_), sampled[chosen], group, time)
