"""Solver of RankRLS: ridge regression from summed statistics, with or without sign constraints on the weights.

With A = Σ A_q / P + λI and b = Σ b_q / P + λ w0 the weights minimize ½ w'Aw - b'w. Without constraints they are
A⁻¹b. Nonnegative weights are found by block principal pivoting (Júdice and Pires 1994), which is exact and finite:
guess which weights are zero, solve for the others, then free or fix the weights that violate the optimality
conditions, and repeat. A weight that must not be positive is handled by negating its feature.
"""

from __future__ import annotations

import numba
import numpy as np

_SLACK = 1e-12  # tolerance of a sign, relative to the numbers it is computed from
_PATIENCE = 3  # full exchanges allowed without progress
_ROUNDS = 10_000  # upper bound: the proof of termination assumes exact arithmetic


@numba.njit(cache=True, nogil=True)
def solve_rows(gram, moment, pairs, ridge, center, signs, weights):  # type: ignore[no-untyped-def]
    """Solve each row of statistics; `signs` is 1 (w ≥ 0), -1 (w ≤ 0) or 0 (any) for each feature.

    The weights of a row without pairs are the center, set to 0 if it violates a sign.
    """
    features = moment.shape[1]
    system = np.empty((features, features))
    right = np.empty(features)
    signed = np.any(signs != 0)
    for s in range(len(pairs)):
        total = pairs[s]
        w = weights[s]
        if -1e-6 < total <= 0.0:
            for a in range(features):
                w[a] = center[a] if center[a] * signs[a] >= 0.0 else 0.0
            continue
        if total < 0.0:
            raise ValueError("a negative number of pairs")
        k = 0
        for a in range(features):
            for b in range(a, features):
                system[b, a] = system[a, b] = gram[s, k] / total
                k += 1
            system[a, a] += ridge
            right[a] = moment[s, a] / total + ridge * center[a]
        if signed:
            _solve_signed(system, right, signs, w)
        else:
            w[:] = right
            _solve_positive_definite(system, w)


@numba.njit(cache=True, nogil=True)
def _solve_positive_definite(system, w):  # type: ignore[no-untyped-def]
    """Replace w with system⁻¹ w, by Cholesky."""
    features = len(w)
    lower = np.linalg.cholesky(system)
    for a in range(features):
        for b in range(a):
            w[a] -= lower[a, b] * w[b]
        w[a] /= lower[a, a]
    for a in range(features - 1, -1, -1):
        w[a] /= lower[a, a]
        for b in range(a):
            w[b] -= lower[a, b] * w[a]


@numba.njit(cache=True, nogil=True)
def _solve_signed(system, right, signs, w):  # type: ignore[no-untyped-def]
    """Solve for the best w with the required signs; overwrites system and right.

    The system is first scaled to a unit diagonal, so that the tolerance does not depend on the features' units.
    """
    features = len(w)
    unit = np.sqrt(np.diag(system))
    for a in range(features):
        right[a] /= unit[a]
        for b in range(features):
            system[a, b] /= unit[a] * unit[b]
    w[:] = right
    _solve_positive_definite(system, w)
    free = np.ones(features, dtype=np.bool_)  # the others are fixed at zero
    violations = np.empty(features, dtype=np.int64)
    fewest, patience = features + 1, _PATIENCE
    for _ in range(_ROUNDS):
        count = _violations(system, right, signs, free, w, violations)
        if count == 0:
            break
        if count < fewest:
            fewest, patience = count, _PATIENCE
        else:
            patience -= 1
        # Exchanging all is fast but may cycle; exchanging only the last never does (Murty 1974).
        first = 0 if patience >= 0 else count - 1
        for c in range(first, count):
            free[violations[c]] = not free[violations[c]]
        _solve_free(system, right, free, w)
    else:
        raise ValueError("no weights with these signs were found")
    for a in range(features):
        # A remaining wrong sign is within the tolerance.
        w[a] = w[a] / unit[a] if w[a] * signs[a] >= 0.0 else 0.0


@numba.njit(cache=True, nogil=True)
def _violations(system, right, signs, free, w, violations):  # type: ignore[no-untyped-def]
    """List the free weights with the wrong sign and the fixed ones whose gradient points away from zero."""
    largest = np.max(np.abs(w))
    count = 0
    for a in range(len(w)):
        if signs[a] == 0:
            continue
        if free[a]:
            violated = w[a] * signs[a] < -_SLACK * largest
        else:
            gradient, size = -right[a], abs(right[a])
            for b in range(len(w)):
                gradient += system[a, b] * w[b]
                size += abs(system[a, b] * w[b])
            violated = gradient * signs[a] < -_SLACK * size
        if violated:
            violations[count] = a
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _solve_free(system, right, free, w):  # type: ignore[no-untyped-def]
    """Solve for the free weights, with the others at zero."""
    index = np.flatnonzero(free)
    part = np.empty((len(index), len(index)))
    some = np.empty(len(index))
    for i in range(len(index)):
        for j in range(len(index)):
            part[i, j] = system[index[i], index[j]]
        some[i] = right[index[i]]
    _solve_positive_definite(part, some)
    w[:] = 0.0
    for i in range(len(index)):
        w[index[i]] = some[i]
