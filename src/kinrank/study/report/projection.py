"""Project query descriptions onto a plane, for the map of queries."""

from __future__ import annotations

import numpy as np

from kinrank.arrays import Float32, Float64

_N_COMPONENTS = 50  # principal components given to t-SNE; the rest is mostly noise and costs time
_PERPLEXITY = 30.0
_MAX_ITER = 500


def project(points: Float32, seed: int = 0) -> Float64:
    """Project points into the unit square so that neighbors stay neighbors.

    Uses t-SNE, initialized with the first two principal components so that the overall layout follows the data.
    Distances between groups mean little. A few points are placed by the principal components alone.

    Examples
    --------
    >>> project(np.array([[0.0, 0.0, 5.0], [0.0, 4.0, 5.0], [2.0, 2.0, 5.0]], dtype=np.float32)).round(2).tolist()
    [[0.0, 0.25], [1.0, 0.25], [0.5, 0.75]]
    """
    from sklearn.manifold import TSNE

    components = _principal_components(points)
    spread = float(components[:, 0].std())
    if len(points) <= 3 * _PERPLEXITY or not spread:
        return _in_unit_square(components[:, :2])
    # As small as scikit-learn's own PCA initialization, which t-SNE needs to unfold.
    start = (components[:, :2] / spread * 1e-4).astype(np.float32)
    tsne = TSNE(init=start, perplexity=_PERPLEXITY, max_iter=_MAX_ITER, random_state=seed)
    return _in_unit_square(tsne.fit_transform(components).astype(np.float64))


def _principal_components(points: Float32) -> Float64:
    """Return the first principal components, at least two; the sign makes the largest loading positive."""
    centered = points.astype(np.float64) - points.mean(axis=0, dtype=np.float64)
    left, size, right = np.linalg.svd(centered, full_matrices=False)
    largest = right[np.arange(len(right)), np.abs(right).argmax(axis=1)]
    components: Float64 = (left * size * np.where(largest < 0, -1.0, 1.0))[:, :_N_COMPONENTS]
    return components if components.shape[1] > 1 else np.column_stack([components, np.zeros(len(components))])


def _in_unit_square(plane: Float64) -> Float64:
    low, high = plane.min(axis=0), plane.max(axis=0)
    placed: Float64 = 0.5 + (plane - (low + high) / 2) / (float((high - low).max()) or 1.0)
    return placed
