"""Hoi and Jin, "Semi-Supervised Ensemble Ranking", AAAI 2008, written down from its text alone.

A query is one row per document with the scores of the m rankers; labels are +1, 0 and -1.
"""

from __future__ import annotations

Matrix = list[list[float]]

# "C, δ and θ are simply set to 1, 1 and 0.5", and "k = 5 in our experiments".
C, DELTA, THETA, NEIGHBORS = 1.0, 1.0, 0.5, 5


def zeros(n: int, m: int) -> Matrix:
    return [[0.0] * m for _ in range(n)]


def relevance_matrix(y: list[int]) -> Matrix:
    """A, Eq. 5."""
    A = zeros(len(y), len(y))
    for j in range(len(y)):
        for k in range(len(y)):
            if y[j] == 1 and y[k] == -1:
                A[j][k] = 1.0
            elif y[j] == -1 and y[k] == 1:
                A[j][k] = -1.0
            elif y[j] == 1 and y[k] == 0:
                A[j][k] = THETA
            elif y[j] == 0 and y[k] == 1:
                A[j][k] = -THETA
    return A


def transition_matrix(scores: list[float]) -> Matrix:
    """R: 1 if d_k is ranked before d_l, smoothed by δI, with columns that sum to 1."""
    n = len(scores)
    R = zeros(n, n)
    for k in range(n):
        for before in range(n):
            R[k][before] = (1.0 if scores[k] > scores[before] else 0.0) + (DELTA if k == before else 0.0)
    for column in range(n):
        total = sum(R[k][column] for k in range(n))
        for k in range(n):
            R[k][column] /= total
    return R


def b(scores: Matrix, y: list[int]) -> list[float]:
    """b_j = tr(A' R_j), below Eq. 10."""
    A = relevance_matrix(y)
    values = []
    for ranker in range(len(scores[0])):
        R = transition_matrix([row[ranker] for row in scores])
        total = 0.0
        for k in range(len(y)):
            for column in range(len(y)):
                total += A[k][column] * R[k][column]
        values.append(total)
    return values


def normalized_laplacian(G: Matrix) -> Matrix:
    """L, Eq. 9, of the 5-nearest-neighbor graph with Euclidean distance.

    S must be symmetric: documents are joined if either is among the 5 nearest of the other. Edges have weight 1. Both
    are open in the paper.
    """
    n = len(G)
    S = zeros(n, n)
    for i in range(n):
        others = [j for j in range(n) if j != i]
        others.sort(key=lambda j: sum((a - c) ** 2 for a, c in zip(G[i], G[j], strict=True)))
        for j in others[:NEIGHBORS]:
            S[i][j] = S[j][i] = 1.0
    degree = [sum(row) for row in S]
    L = zeros(n, n)
    for i in range(n):
        for j in range(n):
            L[i][j] = (1.0 if i == j else 0.0) - S[i][j] / (degree[i] * degree[j]) ** 0.5
    return L


def inverse(matrix: Matrix) -> Matrix:
    """Gauss-Jordan elimination; the matrix is positive definite, so no pivoting."""
    n = len(matrix)
    rows = [[*row, *[1.0 if i == j else 0.0 for j in range(n)]] for i, row in enumerate(matrix)]
    for column in range(n):
        pivot = rows[column][column]
        rows[column] = [value / pivot for value in rows[column]]
        for i in range(n):
            if i != column:
                factor = rows[i][column]
                rows[i] = [value - factor * other for value, other in zip(rows[i], rows[column], strict=True)]
    return [row[n:] for row in rows]


def dual(B: Matrix, H: Matrix) -> tuple[list[float], list[float], list[float]]:
    """Maximize Eq. 11 over 0 ≤ α ≤ C and η ≥ 0 (Eq. 12), one variable at a time. Returns w, α and η.

    Eq. 13 says w = H Σ α_i b_i. The gradient of the Lagrangian also holds the multipliers η of w ≥ 0: at its zero
    w = H (Σ α_i b_i + η). Without η, w would be negative wherever η is not 0.
    """
    m = len(H)
    alpha, eta, force = [0.0] * len(B), [0.0] * m, [0.0] * m  # force = Σ α_i b_i + η
    HB = [[sum(H[j][k] * row[k] for k in range(m)) for j in range(m)] for row in B]
    for _ in range(100_000):
        largest = 0.0
        for i, (row, along) in enumerate(zip(B, HB, strict=True)):
            curvature = sum(row[j] * along[j] for j in range(m))
            if curvature == 0.0:
                continue
            gradient = 1.0 - sum(force[j] * along[j] for j in range(m))
            step = min(max(alpha[i] + gradient / curvature, 0.0), C) - alpha[i]
            alpha[i] += step
            force = [value + step * row[j] for j, value in enumerate(force)]
            largest = max(largest, abs(step))
        for j in range(m):
            slope = sum(H[j][k] * force[k] for k in range(m))
            step = max(eta[j] - slope / H[j][j], 0.0) - eta[j]
            eta[j] += step
            force[j] += step
            largest = max(largest, abs(step))
        if largest <= 1e-13:
            break
    return [sum(H[j][k] * force[k] for k in range(m)) for j in range(m)], alpha, eta


def sser(train: list[tuple[Matrix, list[int]]], G: Matrix, gamma: float) -> list[float]:
    """Return the weights w for the query whose unlabeled documents have the scores G (Eqs. 10 to 13)."""
    m = len(G[0])
    Q = [[1.0 if j == k else 0.0 for k in range(m)] for j in range(m)]
    if gamma > 0.0:
        L = normalized_laplacian(G)
        for j in range(m):
            for k in range(m):
                for d in range(len(G)):
                    for e in range(len(G)):
                        Q[j][k] += gamma * G[d][j] * L[d][e] * G[e][k]
    B = [b(scores, y) for scores, y in train]
    w, _, _ = dual(B, inverse(Q))
    return w


def ser(train: list[tuple[Matrix, list[int]]]) -> list[float]:
    """Eq. 6, "which is equivalent to the SSER when setting the regularization γ to 0"."""
    return sser(train, [[0.0] * len(train[0][0][0])], 0.0)
