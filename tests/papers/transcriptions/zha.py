"""Zha et al., "Incorporating Query Difference for Learning Retrieval Functions", CIKM 2006, from its text alone.

h is in a reproducing kernel Hilbert space (section 3.3), where both steps have unique minima. The paper's own functions
are lines g_q(x) = β_q + α_q x: of other monotone functions it only says, in footnote 3, that they could be used, so
there is no algorithm for them to write down.
"""

from __future__ import annotations

import math

Vector = list[float]


def kernel(x: Vector, z: Vector, gamma: float) -> float:
    total = 0.0
    for a, b in zip(x, z, strict=True):
        total += (a - b) ** 2
    return math.exp(-gamma * total)


def solve(matrix: list[Vector], rhs: Vector) -> Vector:
    """Solve a linear system by Gaussian elimination with partial pivoting."""
    n = len(rhs)
    rows = [[*row, value] for row, value in zip(matrix, rhs, strict=True)]
    for column in range(n):
        pivot = max(range(column, n), key=lambda i: abs(rows[i][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for i in range(column + 1, n):
            factor = rows[i][column] / rows[column][column]
            for j in range(column, n + 1):
                rows[i][j] -= factor * rows[column][j]
    solution = [0.0] * n
    for i in range(n - 1, -1, -1):
        known = 0.0
        for j in range(i + 1, n):
            known += rows[i][j] * solution[j]
        solution[i] = (rows[i][n] - known) / rows[i][i]
    return solution


def fit_h(X: list[Vector], target: Vector, weight: Vector, gamma: float, penalty: float) -> Vector:
    """Return h at every row of X for the h that minimizes Σ weight (target - h(x))² + λ_h |h|², by Theorem 1.

    With h(x) = Σ c_i K(x, x_i) the minimum is at (W K + λ_h I) c = W target.
    """
    K = [[kernel(x, z, gamma) for z in X] for x in X]
    n = len(X)
    matrix = [[weight[i] * K[i][j] + (penalty if i == j else 0.0) for j in range(n)] for i in range(n)]
    c = solve(matrix, [weight[i] * target[i] for i in range(n)])
    return [sum(K[i][j] * c[j] for j in range(n)) for i in range(n)]


def line_l2(h: Vector, y: Vector, alpha_penalty: float, beta_penalty: float) -> tuple[float, float]:
    """Section 3.2.1, p = 2: the normal equations in α̃ = α - 1 and β, for the response y - h."""
    n = float(len(h))
    h1, h2, r1, hr = 0.0, 0.0, 0.0, 0.0
    for value, grade in zip(h, y, strict=True):
        h1 += value
        h2 += value * value
        r1 += grade - value
        hr += value * (grade - value)
    beta, shift = solve([[n + beta_penalty, h1], [h1, h2 + alpha_penalty]], [r1, hr])
    return 1.0 + shift, beta


def line_l1(h: Vector, y: Vector, alpha_penalty: float, beta_penalty: float) -> tuple[float, float]:
    """Section 3.2.2, p = 1: the quadratic program in the parts α̃⁺, α̃⁻, β⁺, β⁻ ≥ 0, one after the other."""
    up, down, above, below = 0.0, 0.0, 0.0, 0.0
    h1, h2, n = sum(h), sum(value * value for value in h), float(len(h))
    for _ in range(20_000):
        before = (up, down, above, below)
        rest = sum(value * (grade - value - (above - below)) for value, grade in zip(h, y, strict=True))
        up = max(0.0, (rest + down * h2 - alpha_penalty / 2.0) / h2)
        down = min(1.0, max(0.0, (-rest + up * h2 - alpha_penalty / 2.0) / h2))  # α_q ≥ 0
        rest = sum(grade - value for value, grade in zip(h, y, strict=True)) - (up - down) * h1
        above = max(0.0, (rest + below * n - beta_penalty / 2.0) / n)
        below = max(0.0, (-rest + above * n - beta_penalty / 2.0) / n)
        if max(abs(a - b) for a, b in zip(before, (up, down, above, below), strict=True)) <= 1e-14:
            break
    return 1.0 + up - down, above - below


LINES = {1: line_l1, 2: line_l2}


def alternating_optimization(
    X: list[list[Vector]], y: list[Vector], p: int, alpha_penalty: float, beta_penalty: float, rounds: int,
    gamma: float, h_penalty: float,
) -> tuple[Vector, Vector, Vector]:  # fmt: skip
    """Section 3.2: alternate between h, with weights α², and α and β. Returns h at all rows, α and β."""
    rows = [x for query in X for x in query]
    alpha, beta = [1.0] * len(X), [0.0] * len(X)
    h = fit_h(rows, [grade for query in y for grade in query], [1.0] * len(rows), gamma, h_penalty)
    for _ in range(rounds):
        start = 0
        target: Vector = []
        weight: Vector = []
        for q, grades in enumerate(y):
            own = h[start : start + len(grades)]
            start += len(grades)
            alpha[q], beta[q] = LINES[p](own, grades, alpha_penalty, beta_penalty)
            # The modified residuals: (y - β - α h)² = α² ((y - β) / α - h)².
            target += [(grade - beta[q]) / alpha[q] for grade in grades]
            weight += [alpha[q] ** 2] * len(grades)
        h = fit_h(rows, target, weight, gamma, h_penalty)
    return h, alpha, beta


def atvt(
    X: list[list[Vector]], y: list[Vector], p: int, alpha_penalty: float, beta_penalty: float, rounds: int,
    gamma: float, h_penalty: float,
) -> tuple[Vector, Vector, Vector]:  # fmt: skip
    """Section 4.3, the procedure of the experiments. Returns h at all rows, and α and β of all rounds together.

    1) y⁰ are the grades. 2) a) fit h to yᵏ, all rows alike, b) fit α and β of each query to yᵏ, c) yᵏ⁺¹ = (yᵏ - β) / α.
    "Then α_q =" is illegible: the lines of all rounds compose to one with y = β + α yᴷ.
    """
    rows = [x for query in X for x in query]
    ones = [1.0] * len(rows)
    alpha, beta = [1.0] * len(X), [0.0] * len(X)
    target = [list(grades) for grades in y]
    h = fit_h(rows, [grade for query in target for grade in query], ones, gamma, h_penalty)
    for _ in range(rounds):
        start = 0
        for q, grades in enumerate(target):
            own = h[start : start + len(grades)]
            start += len(grades)
            step, shift = LINES[p](own, grades, alpha_penalty, beta_penalty)
            target[q] = [(grade - shift) / step for grade in grades]
            beta[q] += alpha[q] * shift
            alpha[q] *= step
        h = fit_h(rows, [grade for query in target for grade in query], ones, gamma, h_penalty)
    return h, alpha, beta
