"""Linear map from scores to grades for each query: step (b) of aTVT (Zha et al. 2006, section 3.2).

With h fixed, each query q has a small convex problem,

    min over α, β of  Σ_j (y_j - β - α h_j)² + λ_β |β|^p + λ_α |α - 1|^p,   α ≥ α_min > 0.

Written in a = α - 1 and the residuals r = y - h, the squares are

    a² C_hh - 2a C_hr + n (r̄ - β - a h̄)²   and a constant,

where C are sums of centered products. The solution needs five numbers per query and no iteration, and all queries are
solved at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.errors import ParameterError


@dataclass(frozen=True, kw_only=True)
class TargetTransform:
    """Penalties for the linear map of a query to differ from α = 1, β = 0.

    Examples
    --------
    >>> free = TargetTransform(p=2, alpha_penalty=0.0, beta_penalty=0.0)
    >>> alpha, beta = free.solve(scores=np.array([0.0, 1.0]), grades=np.array([1.0, 3.0]), offsets=np.array([0, 2]))
    >>> alpha.round(6).tolist(), beta.round(6).tolist()
    ([2.0], [1.0])
    """

    p: int = 2
    """Exponent of both penalties, 1 or 2. With 1, many queries keep α = 1, β = 0 exactly."""
    alpha_penalty: float = 10.0
    beta_penalty: float = 10.0
    """λ_α and λ_β, from 0 (no penalty) to infinity (α = 1, or β = 0, for all queries)."""
    min_alpha: float = 0.01
    """The smallest α, above 0: the map must keep the order, and targets are divided by α."""

    def __post_init__(self) -> None:
        if self.p not in (1, 2):
            raise ParameterError(f"p must be 1 or 2, got {self.p!r}")
        for name in ("alpha_penalty", "beta_penalty"):
            if not getattr(self, name) >= 0:
                raise ParameterError(f"{name} must be 0 or more (np.inf to keep it fixed), got {getattr(self, name)!r}")
        if not 0 < self.min_alpha <= 1:
            raise ParameterError(f"min_alpha must be above 0 and at most 1, got {self.min_alpha!r}")

    def solve(
        self, scores: NDArray[Any], grades: NDArray[Any], offsets: NDArray[Any], weights: NDArray[Any] | None = None
    ) -> tuple[Float64, Float64]:
        """Return the best α and β of each query.

        Parameters
        ----------
        scores, grades
            h and y of each row, with the rows of each query adjacent.
        offsets
            Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``.
        weights
            How often each row counts, once by default.

        Returns
        -------
        alpha, beta : float64 arrays of shape (queries,)
            The minimum. If it is not unique, as for a constant h without penalties, the one with α = 1.
        """
        moments = _Moments.from_rows(scores, grades, offsets, weights)
        slope, beta = self._ridge(moments) if self.p == 2 else self._lasso(moments)
        return np.maximum(1.0 + slope, self.min_alpha), beta  # 1 + (α_min - 1) may round below α_min

    def penalty(self, alpha: Float64, beta: Float64) -> float:
        """Return λ_β |β|_p^p + λ_α |α - 1|_p^p over all queries."""
        per_query = _cost(self.beta_penalty, beta, self.p) + _cost(self.alpha_penalty, alpha - 1.0, self.p)
        return float(per_query.sum())

    def _ridge(self, moments: _Moments) -> tuple[Float64, Float64]:
        """Solve for p = 2: the normal equations with β eliminated, which leaves κ h̄² of n h̄²."""
        kept = 1.0 if np.isinf(self.beta_penalty) else self.beta_penalty / (moments.n + self.beta_penalty)
        kappa = moments.n * kept
        curvature = moments.hh + kappa * moments.h**2 + self.alpha_penalty
        slope = _ratio(moments.hr + kappa * moments.h * moments.r, curvature)
        # The profile over a is convex: if its minimum is out of bounds, the bound is best, with β solved for it.
        slope = np.maximum(slope, self.min_alpha - 1.0)
        return slope, (1.0 - kept) * (moments.r - slope * moments.h)

    def _lasso(self, moments: _Moments) -> tuple[Float64, Float64]:
        """Solve for p = 1: the minimum lies on one of a few faces, given by the signs of a and β; take the best.

        The best β for a given a is a soft threshold, so a alone determines the face.
        """
        faces = [np.zeros_like(moments.h), np.full_like(moments.h, self.min_alpha - 1.0)]
        if np.isfinite(self.alpha_penalty):
            for sign in (-0.5, 0.5):
                moment = moments.hr - sign * self.alpha_penalty
                curvature = moments.hh + moments.n * moments.h**2
                faces.append(_ratio(moment + moments.n * moments.h * moments.r, curvature))  # β = 0
                if np.isfinite(self.beta_penalty):
                    shift = 0.5 * self.beta_penalty * moments.h
                    faces += [_ratio(moment + shift, moments.hh), _ratio(moment - shift, moments.hh)]  # β > 0, β < 0
        slope = np.maximum(np.stack(faces), self.min_alpha - 1.0)
        residual = moments.r - slope * moments.h
        beta = np.sign(residual) * np.maximum(np.abs(residual) - 0.5 * self.beta_penalty / moments.n, 0.0)
        value = slope**2 * moments.hh - 2.0 * slope * moments.hr + moments.n * (residual - beta) ** 2
        value += _cost(self.beta_penalty, beta, 1) + _cost(self.alpha_penalty, slope, 1)
        best = np.argmin(value, axis=0)[None]
        return np.take_along_axis(slope, best, axis=0)[0], np.take_along_axis(beta, best, axis=0)[0]


@dataclass(frozen=True)
class _Moments:
    """Sufficient statistics of each query: rows, means of h and r, centered sums of h² and h r."""

    n: Float64
    h: Float64
    r: Float64
    hh: Float64
    hr: Float64

    @classmethod
    def from_rows(
        cls, scores: NDArray[Any], grades: NDArray[Any], offsets: NDArray[Any], weights: NDArray[Any] | None
    ) -> _Moments:
        sizes = np.diff(offsets)
        query = np.repeat(np.arange(len(sizes)), sizes)
        counted = np.ones(len(query)) if weights is None else np.asarray(weights, dtype=np.float64)

        def total(values: Float64) -> Float64:
            return np.bincount(query, weights=counted * values, minlength=len(sizes)).astype(np.float64)

        # A query without weight keeps α = 1 and β = 0: its sums are 0.
        n = np.maximum(total(np.ones(len(query))), np.finfo(np.float64).tiny)
        h = np.asarray(scores, dtype=np.float64)
        r = np.asarray(grades, dtype=np.float64) - h
        mean_h, mean_r = total(h) / n, total(r) / n
        centered = h - mean_h[query]
        hh, hr = total(centered**2), total(centered * (r - mean_r[query]))
        # Rounding gives a constant h a tiny variance; dividing by it would amplify noise.
        constant = hh <= n * (1e-12 * mean_h) ** 2
        return cls(n, mean_h, mean_r, np.where(constant, 0.0, hh), np.where(constant, 0.0, hr))


def _ratio(numerator: Float64, denominator: Float64) -> Float64:
    """Divide, returning 0 if the denominator is not positive."""
    quotient: Float64 = np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
    return quotient


def _cost(penalty: float, values: Float64, p: int) -> Float64:
    """Return λ |v|^p; an infinite λ costs nothing at v = 0."""
    size = np.abs(values) ** p
    cost: Float64 = np.multiply(penalty, size, out=np.zeros_like(size), where=size > 0)
    return cost
