"""The exact index: one matrix product, one partition."""

from __future__ import annotations

from kinrank.neighbors.base import NeighborIndex


class ExactIndex(NeighborIndex):
    """The nearest points by a scan with BLAS, exact to float64.

    The scan runs in float32 with cached norms; whatever its rounding could have misplaced is measured again in
    float64. The fastest index up to some hundred thousand points; needs no extra.

    Examples
    --------
    >>> index = ExactIndex().fit([[0.0], [1.0], [5.0]])
    >>> distances, indices = index.query([[2.0]], k=2)
    >>> distances.tolist(), indices.tolist()
    ([[1.0, 2.0]], [[1, 0]])
    >>> index.query_radius([[2.0]], radius=1.5)[1].tolist()
    [1]
    """
