"""Cluster models with rank aggregation on MQ2007 and MQ2008: none beats RankSVM, and UpperBound is mostly luck.

Five folds, LETOR's conventions. Number of clusters, penalty, and what else a mode has are chosen on validation by MAP,
the same for RankSVM. By difficulty, with the paper's oracles: the best model always (UpperBound), Naive that knows the
relevant documents (RelevantOnly), and always the r-th best of the models of 100 clusters; beside them what the same
oracles reach with groups of queries drawn by lot. ``kinrank reproduce local-models`` draws them.
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """Of each collection: tables of test measures, by difficulty, settings chosen, and the oracles."""
    methods, oracles = reproduce("cluster-methods"), reproduce("cluster-oracles")
    return {collection: {**methods[collection], "oracles": oracles[collection]} for collection in methods}
