"""The measures of LETOR's evaluation script and of Geng et al. 2008."""

from __future__ import annotations

from kinrank.measure.binary import AP
from kinrank.measure.discounted import NDCG, MeanNDCG

LETOR_NDCG = NDCG(discount="letor", short_lists="zero")
"""LETOR's NDCG, with its own discount; NDCG@k is 0 for a list shorter than k."""

LETOR_MAP = AP
"""LETOR's MAP, which equals `AP`: grades from 1 are relevant, and a query without relevant documents counts 0."""

MEAN_NDCG_LETOR = MeanNDCG(discount="letor")
"""LETOR's MeanNDCG: the mean of NDCG at every position of the list."""

MEAN_NDCG_GENG = MeanNDCG(discount="geng") @ 10
"""The "mean NDCG" of Geng et al. 2008: the mean of NDCG@1 to NDCG@10 by its Eq. 4."""
