"""The measures as LETOR's evaluation script and Geng et al. 2008 mean them, ready to use."""

from __future__ import annotations

from kinrank.measure.binary import AP
from kinrank.measure.discounted import NDCG, MeanNDCG

LETOR_NDCG = NDCG(discount="letor", short_lists="zero")
"""LETOR's NDCG: its own discount, and NDCG@k = 0 for a list shorter than k."""

LETOR_MAP = AP
"""LETOR's MAP: every grade from 1 is relevant, and a query without one counts 0. These are our defaults."""

MEAN_NDCG_LETOR = MeanNDCG(discount="letor")
"""LETOR's MeanNDCG: the mean of NDCG at every position of the list."""

MEAN_NDCG_GENG = MeanNDCG(discount="geng") @ 10
"""The "mean NDCG" of Geng et al. 2008: the mean of NDCG@1 to NDCG@10 by its Eq. 4."""
