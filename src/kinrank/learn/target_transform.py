"""Per query, the line that carries scores to grades: step (b) of aTVT (Zha et al. 2006, section 3.2).

With h fixed, every query q has a small convex problem of its own,

    min over α, β of  Σ_j (y_j - β - α h_j)² + λ_β |β|^p + λ_α |α - 1|^p,   α ≥ α_min > 0.

Written in a = α - 1 and the residuals r = y - h, the squares are

    a² C_hh - 2a C_hr + n (r̄ - β - a h̄)²   and a constant,

where C are sums of centered products: five numbers of a query are all that is needed, nothing is iterated, and all
queries are solved at once.
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
    """How far the line of a query may leave α = 1, β = 0.

    Attributes
    ----------
    p : {1, 2}
        The norm of both penalties. With 1 many queries do not move at all.
    alpha_penalty, beta_penalty : float
        λ_α and λ_β, from 0 (free) to infinity (α = 1, or β = 0, for all queries).
    min_alpha : float
        The smallest α, above 0: a line must not turn an order around, and targets are divided by α.

    Examples
    --------
    >>> free = TargetTransform(p=2, alpha_penalty=0.0, beta_penalty=0.0)
    >>> alpha, beta = free.solve(scores=np.array([0.0, 1.0]), grades=np.array([1.0, 3.0]), offsets=np.array([0, 2]))
    >>> alpha.round(6).tolist(), beta.round(6).tolist()
    ([2.0], [1.0])
    """

    p: int = 2
    alpha_penalty: float = 10.0
    beta_penalty: float = 10.0
    min_alpha: float = 0.01

    def __post_init__(self) -> None:
        if self.p not in (1, 2):
            raise ParameterError(f"p must be 1 or 2, got {self.p!r}")
        for name in ("alpha_penalty", "beta_penalty"):
            if not getattr(self, name) >= 0:
                raise ParameterError(f"{name} must be 0 or more (np.inf forbids any move), got {getattr(self, name)!r}")
        if not 0 < self.min_alpha <= 1:
            raise ParameterError(f"min_alpha must lie above 0 and not above 1, got {self.min_alpha!r}")

    def solve(self, scores: NDArray[Any], grades: NDArray[Any], offsets: NDArray[Any]) -> tuple[Float64, Float64]:
        """The best α and β of each query.

        Parameters
        ----------
        scores, grades
            h and y of each row; rows of one query lie together.
        offsets
            Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``.

        Returns
        -------
        alpha, beta : float64 arrays of shape (queries,)
            The minimum. Where it is not unique, as for a constant h without penalties, the one with α = 1.
        """
        moments = _Moments.of(scores, grades, offsets)
        slope, beta = self._ridge(moments) if self.p == 2 else self._lasso(moments)
        return np.maximum(1.0 + slope, self.min_alpha), beta  # 1 + (α_min - 1) may round below α_min

    def penalty(self, alpha: Float64, beta: Float64) -> float:
        """λ_β |β|_p^p + λ_α |α - 1|_p^p over all queries."""
        per_query = _weighed(self.beta_penalty, beta, self.p) + _weighed(self.alpha_penalty, alpha - 1.0, self.p)
        return float(per_query.sum())

    def _ridge(self, of: _Moments) -> tuple[Float64, Float64]:
        """P = 2: the normal equations, β eliminated. What is left of n h̄² after β took its part is κ h̄²."""
        kept = 1.0 if np.isinf(self.beta_penalty) else self.beta_penalty / (of.n + self.beta_penalty)
        kappa = of.n * kept
        curvature = of.hh + kappa * of.h**2 + self.alpha_penalty
        slope = _ratio(of.hr + kappa * of.h * of.r, curvature)
        # The profile over a is convex: where its minimum is not allowed, the bound is best, with β solved for it.
        slope = np.maximum(slope, self.min_alpha - 1.0)
        return slope, (1.0 - kept) * (of.r - slope * of.h)

    def _lasso(self, of: _Moments) -> tuple[Float64, Float64]:
        """P = 1: the minimum lies on one of a few faces, by the signs of a and β; the best of their minima is it.

        The best β for a given a is a soft threshold, so the faces are told apart by a alone.
        """
        faces = [np.zeros_like(of.h), np.full_like(of.h, self.min_alpha - 1.0)]
        if np.isfinite(self.alpha_penalty):
            for sign in (-0.5, 0.5):
                pull = of.hr - sign * self.alpha_penalty
                faces.append(_ratio(pull + of.n * of.h * of.r, of.hh + of.n * of.h**2))  # β = 0
                if np.isfinite(self.beta_penalty):
                    shift = 0.5 * self.beta_penalty * of.h
                    faces += [_ratio(pull + shift, of.hh), _ratio(pull - shift, of.hh)]  # β > 0, β < 0
        slope = np.maximum(np.stack(faces), self.min_alpha - 1.0)
        away = of.r - slope * of.h
        beta = np.sign(away) * np.maximum(np.abs(away) - 0.5 * self.beta_penalty / of.n, 0.0)
        value = slope**2 * of.hh - 2.0 * slope * of.hr + of.n * (away - beta) ** 2
        value += _weighed(self.beta_penalty, beta, 1) + _weighed(self.alpha_penalty, slope, 1)
        best = np.argmin(value, axis=0)[None]
        return np.take_along_axis(slope, best, axis=0)[0], np.take_along_axis(beta, best, axis=0)[0]


@dataclass(frozen=True)
class _Moments:
    """What the problem needs of each query: rows, means of h and r, centered sums of h² and h r."""

    n: Float64
    h: Float64
    r: Float64
    hh: Float64
    hr: Float64

    @classmethod
    def of(cls, scores: NDArray[Any], grades: NDArray[Any], offsets: NDArray[Any]) -> _Moments:
        sizes = np.diff(offsets)
        query = np.repeat(np.arange(len(sizes)), sizes)
        n = sizes.astype(np.float64)

        def total(values: Float64) -> Float64:
            return np.bincount(query, weights=values, minlength=len(sizes)).astype(np.float64)

        h = np.asarray(scores, dtype=np.float64)
        r = np.asarray(grades, dtype=np.float64) - h
        mean_h, mean_r = total(h) / n, total(r) / n
        away = h - mean_h[query]
        hh, hr = total(away**2), total(away * (r - mean_r[query]))
        # Rounding leaves a constant h a tiny spread; dividing by it would make noise of it.
        constant = hh <= n * (1e-12 * mean_h) ** 2
        return cls(n, mean_h, mean_r, np.where(constant, 0.0, hh), np.where(constant, 0.0, hr))


def _ratio(numerator: Float64, denominator: Float64) -> Float64:
    """The quotient, 0 where there is nothing to divide by."""
    quotient: Float64 = np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
    return quotient


def _weighed(penalty: float, values: Float64, p: int) -> Float64:
    """λ |v|^p, where an infinite λ costs nothing at v = 0."""
    size = np.abs(values) ** p
    cost: Float64 = np.multiply(penalty, size, out=np.zeros_like(size), where=size > 0)
    return cost
