"""One model for all queries fails if half of the queries want the opposite order; a model per camp succeeds.

Run with ``python examples/two_camps.py``.
"""

from __future__ import annotations

from kinrank import SingleRanker
from kinrank.datasets import make_two_camps

queries = make_two_camps(n_queries=200, n_docs=20)
camp = queries.query_columns["camp"]

print(f"one model for all queries: {SingleRanker('rankrls').fit(queries).score(queries):.3f}")
for side in (1, -1):
    own = queries[camp == side]
    print(f"one model for camp {side:2}: {SingleRanker('rankrls').fit(own).score(own):.3f}")
