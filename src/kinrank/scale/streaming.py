"""What a `KinRanker` does besides summing its cells when it trains from disk."""

from __future__ import annotations

import numpy as np

from kinrank.data.blocks import Blocks
from kinrank.parallel import Executor
from kinrank.rankers.kin.ranker import KinRanker
from kinrank.rankers.kin.settings import MOST_CELLS, check_settings
from kinrank.rankers.kin.trees import n_columns_seen
from kinrank.rankers.local.texts import EncodedBlocks, fit_encoder_on_blocks
from kinrank.scale.folder import JobFolder

TREE_QUERIES = 50_000
"""Number of queries that trees learn from, if it is not set: more gain nothing measurable."""
TREE_VALUES = 300_000_000
"""Upper limit of the numbers that trees see of these queries, 1.2 GB. A worker needs 2.8 GB then."""


def set_sizes(kin: KinRanker, blocks: Blocks, n_queries: int) -> None:
    """Choose the number of cells and of queries for the trees that suit training from disk, unless they are set."""
    if kin.n_cells is None:
        kin.n_cells = int(np.clip(n_queries // 10, 1, MOST_CELLS))
    if kin.tree_queries is None:
        values = blocks.total_rows() / n_queries * n_columns_seen(len(blocks.feature_names), kin.local)
        kin.tree_queries = int(np.clip(TREE_VALUES / max(values, 1.0), 1, TREE_QUERIES))


def fit_to_texts(kin: KinRanker, blocks: Blocks, executor: Executor, store: JobFolder) -> None:
    """Check settings against the queries, and fit the encoder to a sample of their texts, if they have any."""
    check_settings(kin, blocks.head())
    kin.encoder_ = fit_encoder_on_blocks(kin.encoder, blocks, executor, store)


def with_vectors(kin: KinRanker, blocks: Blocks) -> Blocks:
    """Return the queries with the vectors that the fitted encoder gives them, if there is one."""
    return blocks if kin.encoder_ is None else EncodedBlocks(blocks, kin.encoder_)
