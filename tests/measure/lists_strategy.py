"""Hypothesis strategy for judged lists with ties and with queries without relevant documents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st


@dataclass
class Lists:
    scores: np.ndarray
    y: np.ndarray
    offsets: np.ndarray
    doc_id: np.ndarray

    def arguments(self) -> tuple[np.ndarray, ...]:
        return self.scores, self.y, self.offsets, self.doc_id

    def one(self, query: int) -> tuple[list[float], list[int], list[str]]:
        rows = slice(self.offsets[query], self.offsets[query + 1])
        return self.scores[rows].tolist(), self.y[rows].tolist(), self.doc_id[rows].tolist()

    def __len__(self) -> int:
        return len(self.offsets) - 1


@st.composite
def judged_lists(draw: st.DrawFn, max_size: int = 6, max_queries: int = 5, tied: bool = True) -> Lists:
    sizes = draw(st.lists(st.integers(1, max_size), min_size=1, max_size=max_queries))
    n = sum(sizes)
    levels = st.sampled_from([-1.5, 0.0, 0.25, 2.0]) if tied else st.integers(-1000, 1000).map(float)
    scores = draw(st.lists(levels, min_size=n, max_size=n, unique=not tied))
    y = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    docs = draw(st.permutations([f"d{i}" for i in range(n)]))
    return Lists(np.array(scores), np.array(y), np.cumsum([0, *sizes]), np.array(docs))
