"""Where the CPU time of a ranking goes, stage by stage, for a batch of the requests of `serve_load`.

The stages run in one thread of this process, without HTTP; CPU time depends little on other load. What is left of
*predict* is Python between the stages. The models are those of `serve_load`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import msgspec
import numpy as np

import kinrank
from benchmarks.engine_msrd import CHECKOUT
from benchmarks.serve_load import MODELS, fit_once, write_bodies
from kinrank.learn._forest import Forest
from kinrank.memory.columns import QueryMemory
from kinrank.rankers._local.neighbor_model import NeighborModel
from kinrank.rankers.base import Ranker
from kinrank.rankers.kin._trees import TreeView
from kinrank.serve._http.bodies import parse_rank
from kinrank.serve.messages import CandidateSet, Ranking, to_query_set

OPTIONS = {"batch": ("16", "1"), "rounds": ("40", "2")}
STAGES: tuple[tuple[Any, str, str], ...] = (
    (NeighborModel, "points", "describe"),
    (NeighborModel, "near", "search"),
    (NeighborModel, "learn_each", "learn"),
    (QueryMemory, "columns", "memory"),
    (TreeView, "table", "standing of each value"),
    (Forest, "predict", "trees"),
)
WARM = 3


class Clock:
    """Sums the CPU time of calls by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def __call__(self, name: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return what a call returns."""
        start = time.thread_time()
        result = call(*args, **kwargs)
        self.seconds[name] += time.thread_time() - start
        return result

    @contextmanager
    def inside(self, stages: tuple[tuple[Any, str, str], ...]) -> Iterator[None]:
        """Measure functions of the model as well."""
        with ExitStack() as stack:
            for owner, attribute, name in stages:
                stack.enter_context(mock.patch.object(owner, attribute, self._timed(getattr(owner, attribute), name)))
            yield

    def _timed(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self(name, call, *args, **kwargs)


def run(batch: str, rounds: str) -> dict[str, object]:
    """Return the milliseconds of each stage per query, by model."""
    place = CHECKOUT / "benchmarks" / "results" / "serve_load"
    write_bodies(place)
    bodies = {name: (place / f"{name}.body").read_bytes() for name in ("json", "msgpack")}
    figures: dict[str, object] = {"batch": int(batch)}
    for name in MODELS:
        fit_once(name, place / name)
        ranker = kinrank.load(place / name)
        for _ in range(WARM):
            rank_batch(Clock(), ranker, bodies, int(batch))
        clock = Clock()
        with clock.inside(STAGES):
            for _ in range(int(rounds)):
                rank_batch(clock, ranker, bodies, int(batch))
        queries = int(batch) * int(rounds)
        figures[name] = {stage: round(1000 * each / queries, 3) for stage, each in clock.seconds.items()}
    return figures


def rank_batch(clock: Clock, ranker: Ranker, bodies: dict[str, bytes], size: int) -> None:
    """Parse a batch of requests in both formats, rank it, and write the responses."""
    for format_, raw in bodies.items():
        parsed = [clock(f"parse {format_}", parse_rank, raw, packed=format_ == "msgpack")[0] for _ in range(size)]
    names = ranker.feature_names_
    rows = [candidates.align(names) for candidates in parsed]
    queries = clock("join", to_query_set, parsed, rows, names)
    predicted = clock("predict", ranker.predict_with_novelty, queries)
    for position, candidates in enumerate(parsed):
        scores = predicted.scores[queries.offsets[position] : queries.offsets[position + 1]]
        clock("respond", respond, candidates, scores)


def respond(candidates: CandidateSet, scores: np.ndarray) -> bytes:
    """Return the body of a response."""
    order = np.argsort(-scores, kind="stable")
    ids = [candidates.ids[place] for place in order.tolist()]
    return msgspec.json.encode(Ranking(ids, scores[order].tolist(), "model"))
