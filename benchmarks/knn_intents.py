"""The KNN paper's results on generated intents: three modes beat Single and QC; the curve over k; the change ratio.

`reproduction.experiments.intents` and `intent_curves` describe the setup. ``python -m reproduction geng`` draws the
curves.
"""

from __future__ import annotations

from benchmarks.common import reproduce


def run() -> dict[str, object]:
    """Return the quality of each method, p against both baselines, curves over k and change ratios."""
    methods, curves = reproduce("intents"), reproduce("intent-curves")
    return {size: {**methods[size], **curves[size]} for size in methods}
