"""The KNN paper's findings on generated intents: three modes beat Single and QC; the curve over k; the change ratio.

RankRLS for all. The paper's two sizes (1,500 + 400 and 3,000 + 800 queries, 200 features, grades 0 to 4), its
description (mean of the top 50 by the reference column), λ = 0.01, k = 400 and 800, its mean NDCG@1..10 and paired
t-tests. Worlds of several seeds; the generator's settings were chosen on seed 0, so seeds from 1 on are the fair ones.
``kinrank reproduce geng`` draws the curves.
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """Quality of each method, p against both baselines, curves over k, change ratios."""
    methods, curves = reproduce("intents"), reproduce("intent-curves")
    return {size: {**methods[size], **curves[size]} for size in methods}
