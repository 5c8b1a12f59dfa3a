"""The solve behind RankRLS: ridge regression from summed statistics, with or without a sign for each weight.

With A = Σ A_q / P + λI and b = Σ b_q / P + λ w0 the weights minimize ½ w'Aw - b'w. Without constraints they are
A⁻¹b. Where weights must not be negative they are found by block principal pivoting (Júdice and Pires 1994), exact
and finite: guess which weights are zero, solve for the others, and where a weight came out negative, or a zero one
wants to grow, move it to the other side. A weight that must not be positive is the same with its feature negated.
"""

from __future__ import annotations

import numba
import numpy as np

_SLACK = 1e-12  # by how much a sign may be missed, relative to the numbers it is computed from
_PATIENCE = 3  # exchanges of everything that may pass without progress
_ROUNDS = 10_000  # an end, since the proof that there is one knows no rounding


@numba.njit(cache=True, nogil=True)
def solve_rows(gram, moment, pairs, ridge, center, signs, weights):  # type: ignore[no-untyped-def]
    """Solve each row of statistics; `signs` is 1 (w ≥ 0), -1 (w ≤ 0) or 0 (any) for each feature.

    A row without a pair has learned nothing: its weights are the center, as far as the signs allow.
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
    """Replace w by system⁻¹ w, by Cholesky."""
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
    """Solve for the best w whose signs are right; changes system and right.

    They are scaled to a unit diagonal first, so that the slack means the same for a feature in cents and one in years.
    """
    features = len(w)
    unit = np.sqrt(np.diag(system))
    for a in range(features):
        right[a] /= unit[a]
        for b in range(features):
            system[a, b] /= unit[a] * unit[b]
    w[:] = right
    _solve_positive_definite(system, w)
    loose = np.ones(features, dtype=np.bool_)  # the others are held at zero
    wrong = np.empty(features, dtype=np.int64)
    fewest, patience = features + 1, _PATIENCE
    for _ in range(_ROUNDS):
        count = _wrong_side(system, right, signs, loose, w, wrong)
        if count == 0:
            break
        if count < fewest:
            fewest, patience = count, _PATIENCE
        else:
            patience -= 1
        # Exchanging all is quick but may go in circles; the last one alone never does (Murty 1974).
        first = 0 if patience >= 0 else count - 1
        for c in range(first, count):
            loose[wrong[c]] = not loose[wrong[c]]
        _solve_loose(system, right, loose, w)
    else:
        raise ValueError("no weights of these signs were found")
    for a in range(features):
        # What is left of a wrong sign is within the slack.
        w[a] = w[a] / unit[a] if w[a] * signs[a] >= 0.0 else 0.0


@numba.njit(cache=True, nogil=True)
def _wrong_side(system, right, signs, loose, w, wrong):  # type: ignore[no-untyped-def]
    """List the weights that break their sign, and the zero ones whose gradient pulls them away from zero."""
    largest = np.max(np.abs(w))
    count = 0
    for a in range(len(w)):
        if signs[a] == 0:
            continue
        if loose[a]:
            astray = w[a] * signs[a] < -_SLACK * largest
        else:
            gradient, size = -right[a], abs(right[a])
            for b in range(len(w)):
                gradient += system[a, b] * w[b]
                size += abs(system[a, b] * w[b])
            astray = gradient * signs[a] < -_SLACK * size
        if astray:
            wrong[count] = a
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _solve_loose(system, right, loose, w):  # type: ignore[no-untyped-def]
    """Solve for the loose weights, the others being zero."""
    index = np.flatnonzero(loose)
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
