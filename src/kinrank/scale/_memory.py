"""The memory of a `KinRanker` that is trained from blocks: which parts pay, the columns of trees, and what is kept.

Known queries are split into shards, as many as a block of an index holds. Each shard is indexed by one worker, which
answers for all queries that trees learn from. The answers are joined in the order of the shards, so that nothing
depends on who computes them, and the columns are those of a fit in memory. The indexes of all shards together are that
of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from kinrank.arrays import Float32, Int64, State
from kinrank.data.hashes import query_keys
from kinrank.data.queryset import QuerySet
from kinrank.errors import DamagedFolderError
from kinrank.kin.letters import BLOCK, Vocabulary
from kinrank.memory.answers import Answers, Round
from kinrank.memory.columns import Judged, QueryMemory, listed_repeats
from kinrank.parallel import Executor, TaskCost, start_measuring
from kinrank.rankers.kin._parts import Facts, MemoryPart, PartRecord, choose_memory
from kinrank.scale._known import KnownQueries
from kinrank.scale._sum_tree import JobFolder, StoredQueries, SumTree
from kinrank.store import nest, unnest

MOST_KNOWN = 1_000_000
"""Number of queries that memory keeps at most, if it is not set: some 4 GB with 40 candidates."""

_PARTS = -1  # the item that decides about parts; the others are shards


@dataclass(frozen=True, eq=False)
class _Plan:
    """What all workers need to know."""

    letters: Vocabulary
    words: Vocabulary
    best: float
    sample: Judged
    """What memory needs of the queries that trees learn from."""
    sampled: NDArray[np.bool_]
    """Which of the known queries these are."""
    rounds: list[Round]
    listed: NDArray[np.bool_]
    """The known queries that are read among those of the same text."""
    ends: Int64
    """Where the known queries of each block of the data end."""
    per_shard: int
    """The number of known queries of a shard."""

    @classmethod
    def of(cls, known: KnownQueries, ends: Int64, seed: int) -> _Plan:
        """Plan the folds of all known queries, and how they are described."""
        judged = known.judged
        texts = judged.texts.tolist()
        facts = Facts(len(known), judged.relevant, known.group, known.time)
        return cls(
            Vocabulary.of(texts),
            Vocabulary.of(texts, words=True),
            judged.best,
            judged.take(np.flatnonzero(known.sampled)),
            known.sampled,
            facts.rounds(seed, known.sampled),
            listed_repeats(query_keys(judged.texts)),
            ends,
            BLOCK,
        )

    @property
    def n_shards(self) -> int:
        """The number of shards."""
        return -(-len(self.sampled) // self.per_shard)

    def bounds(self, shard: int) -> tuple[int, int]:
        """Return where a shard of the known queries starts and ends."""
        return shard * self.per_shard, min((shard + 1) * self.per_shard, len(self.sampled))

    def get_state(self) -> State:
        """Return all arrays."""
        rounds = {
            f"round{number}": {"part": order.part, "asked": order.asked, "in_time": np.array(order.in_time)}
            for number, order in enumerate(self.rounds)
        }
        own = {"letters": self.letters.idf, "words": self.words.idf, "best": np.array(self.best)}
        places = {
            "sampled": self.sampled,
            "listed": self.listed,
            "ends": self.ends,
            "per_shard": np.array(self.per_shard),
        }
        return nest(sample=self.sample.get_state(), **rounds) | own | places

    @classmethod
    def from_state(cls, state: State) -> _Plan:
        """Restore what `get_state` returned."""
        rounds: list[Round] = []
        while order := unnest(state, f"round{len(rounds)}"):
            rounds.append(Round(order["part"], order["asked"], bool(order["in_time"])))
        letters, words = Vocabulary(state["letters"], words=False), Vocabulary(state["words"], words=True)
        sample = Judged.from_state(unnest(state, "sample"))
        best, per_shard = float(state["best"]), int(state["per_shard"])
        places = state["listed"], state["ends"]
        return cls(letters, words, best, sample, state["sampled"], rounds, *places, per_shard)


@dataclass(frozen=True, eq=False)
class StoredColumns:
    """The columns of memory of the sampled queries of each block, in the job folder."""

    folder: JobFolder
    n_columns: int

    def __call__(self, block: int) -> Float32:
        """Return the columns of a block."""
        columns: Float32 = self.folder.read(f"columns-{block}")["columns"]
        return columns


@dataclass(frozen=True, eq=False)
class MemoryJob:
    """Decides about the parts of memory, makes the columns of the sampled queries, and joins what is remembered."""

    tree: SumTree
    """The blocks, in whose folder everything is kept."""
    keys: tuple[str, ...]
    group_column: str | None
    time_column: str | None
    seed: int

    @property
    def folder(self) -> JobFolder:
        """The folder of the job."""
        return self.tree.folder

    def columns(
        self, executor: Executor, progress: Callable[[str, int, int, TaskCost], None]
    ) -> tuple[StoredColumns | None, list[PartRecord], Float32 | None]:
        """Return the columns that trees see, in the folder, what was found about each part, and the columns."""
        plan, ends = self._plan()
        items, existing = [_PARTS, *range(plan.n_shards)], self.folder.names()
        missing = [item for item in items if _name(item) not in existing]
        finished = executor.map_unordered(self.make, missing)
        for done, (_, cost) in enumerate(finished, len(items) - len(missing) + 1):
            progress("memory", done, len(items), cost)
        seen, _, records = self._parts()
        if not len(seen):
            return None, records, None
        with threadpool_limits(1):
            columns = self._joined(plan)[:, seen]
        stored = StoredColumns(self.folder, len(seen))
        for number in range(len(ends) - 1):
            self.folder.write(f"columns-{number}", {"columns": columns[ends[number] : ends[number + 1]]})
        return stored, records, columns

    def _plan(self) -> tuple[_Plan, Int64]:
        """Write what all workers need to know; return it, and where the sampled rows of each block end."""
        blocks = [self.tree.known_queries(block) for block in range(len(self.tree.blocks))]
        plan = _Plan.of(KnownQueries.concat(blocks), np.cumsum([len(block) for block in blocks]), self.seed)
        self.folder.write("memory", plan.get_state())
        rows = [block.judged.sizes[block.sampled].sum() for block in blocks if block.sampled.any()]
        return plan, np.cumsum([0, *rows])

    def remembered(self) -> MemoryPart:
        """Return memory of all known queries, from the shards of `columns`."""
        seen, meaning, _ = self._parts()
        plan = _Plan.from_state(self.folder.read("memory"))
        memory = QueryMemory.of_blocks([self._shard(shard, plan) for shard in range(plan.n_shards)], meaning=meaning)
        qid = [self.tree.known_queries(block).qid for block in range(len(self.tree.blocks))]
        return MemoryPart.of(memory, seen, np.concatenate(qid))

    def make(self, item: int) -> TaskCost:
        """Decide about the parts, or let a shard answer."""
        cost = start_measuring()
        with threadpool_limits(1):  # several BLAS threads may add in another order
            if item == _PARTS:
                self._choose()
            else:
                self._answer(item, _Plan.from_state(self.folder.read("memory")))
        return cost()

    # --- which parts pay, decided on the queries that trees learn from ----------------------------------------------

    def _choose(self) -> State:
        kept = StoredQueries(self.tree)
        queries = QuerySet.concat([kept(block) for block in range(len(kept))])
        assert self.tree.known is not None
        made = self.keys, self.group_column, self.time_column, self.seed
        memory, records = choose_memory(queries, *made, meaning=self.tree.known.meaning)
        seen = np.empty(0, dtype=np.int64) if memory is None else memory.seen
        state = {
            "seen": seen,
            "meaning": np.array(memory is not None and memory.memory.vectors is not None),
            "part": np.array([record.part for record in records], dtype=np.str_),
            "kept": np.array([record.kept for record in records], dtype=np.bool_),
            "measured": np.array([list(vars(record).values())[2:] for record in records], dtype=np.float64),
        }
        self.folder.write(_name(_PARTS), state)
        return state

    def _parts(self) -> tuple[Int64, bool, list[PartRecord]]:
        """Return the columns that trees see, whether vectors are needed, and what was found about each part."""
        try:
            state = self.folder.read(_name(_PARTS))
        except DamagedFolderError:
            state = self._choose()
        records = [
            PartRecord(part, kept, gain, *(None if np.isnan(value) else value for value in measured))
            for part, kept, (gain, *measured) in zip(
                state["part"].tolist(), state["kept"].tolist(), state["measured"].tolist(), strict=True
            )
        ]
        return state["seen"], bool(state["meaning"]), records

    # --- shards of known queries ------------------------------------------------------------------------------------

    def _answer(self, shard: int, plan: _Plan) -> State:
        memory, (start, stop) = self._make_shard(shard, plan), plan.bounds(shard)
        own = plan.sampled
        answers = {}
        for number, order in enumerate(plan.rounds):
            asked = memory.asked_of(plan.sample.take(np.flatnonzero(order.asked[own])))
            found = memory.answers(asked, order, start, plan.listed[start:stop])
            answers[f"round{number}"] = found.get_state()
        state: State = nest(**answers)
        self.folder.write(_name(shard), state)
        return state

    def _make_shard(self, shard: int, plan: _Plan) -> QueryMemory:
        start, stop = plan.bounds(shard)
        parts = []
        for block in range(int(np.searchsorted(plan.ends, start, side="right")), len(plan.ends)):
            known = self.tree.known_queries(block)
            first = int(plan.ends[block]) - len(known)
            if first >= stop:
                break
            parts.append(known.take(np.arange(max(start - first, 0), min(stop - first, len(known)))).judged)
        memory = QueryMemory.of_block(Judged.concat(parts), plan.letters, plan.words, plan.best)
        self.folder.write(f"shard-{shard}", memory.get_state())
        return memory

    def _shard(self, shard: int, plan: _Plan) -> QueryMemory:
        try:
            return QueryMemory.block_from_state(self.folder.read(f"shard-{shard}"))
        except DamagedFolderError:
            return self._make_shard(shard, plan)

    def _joined(self, plan: _Plan) -> Float32:
        """Return the columns of the sampled queries by the answers of all shards."""
        whole: list[Answers] = []
        sizes = plan.sample.sizes
        targets = [
            {name: np.unique(each) for name, each in plan.sample.take(np.flatnonzero(asked)).targets.items()}
            for asked in (order.asked[plan.sampled] for order in plan.rounds)
        ]
        for shard in range(plan.n_shards):
            try:
                state = self.folder.read(_name(shard))
            except DamagedFolderError:
                state = self._answer(shard, plan)
            answers = [
                Answers.from_state(unnest(state, f"round{number}"), targets[number], order.n_parts)
                for number, order in enumerate(plan.rounds)
            ]
            whole = [mine.joined(other) for mine, other in zip(whole, answers, strict=True)] if whole else answers
        describe = self._shard(0, plan)
        columns = np.empty((int(sizes.sum()), len(describe.names)), dtype=np.float32)
        for answer, order in zip(whole, plan.rounds, strict=True):
            own = order.asked[plan.sampled]
            asked = describe.asked_of(plan.sample.take(np.flatnonzero(own)))
            columns[np.repeat(own, sizes)] = answer.columns(asked, order)
        return columns


def _name(item: int) -> str:
    return "parts" if item == _PARTS else f"answers-{item}"
