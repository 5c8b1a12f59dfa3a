"""Cluster models with rank aggregation on MQ2007 and MQ2008: none beats RankSVM, and UpperBound is mostly chance.

`reproduction.experiments.cluster_methods` and `cluster_oracles` describe the setup. ``python -m reproduction
local-models`` draws the plots.
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """Return the test measures, by difficulty too, the chosen settings and the oracles of each collection."""
    methods, oracles = reproduce("cluster-methods"), reproduce("cluster-oracles")
    return {collection: {**methods[collection], "oracles": oracles[collection]} for collection in methods}
