"""Geng et al., "Query Dependent Ranking Using K-Nearest Neighbor", SIGIR 2008, written down from its text alone.

A query is a list of documents, each a list of feature values, and a list of their grades. Nothing here is fast.
"""

from __future__ import annotations

Document = list[float]
Query = tuple[list[Document], list[float]]
Pair = tuple[int, int, int]  # number of the training query, better document, worse document

# Section 4.1.2: "We set λ = 0.01 for all methods."
LAMBDA = 0.01


def dot(a: list[float], b: list[float]) -> float:
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += x * y
    return total


def query_feature(documents: list[Document], reference: int, T: int) -> list[float]:
    """Section 3.2.1: "use a reference model to find its top T ranked documents, and take the mean"."""
    ranked = sorted(range(len(documents)), key=lambda d: -documents[d][reference])
    top = ranked[:T]
    mean = []
    for feature in range(len(documents[0])):
        total = 0.0
        for d in top:
            total += documents[d][feature]
        mean.append(total / len(top))
    return mean


def euclidean_distance(a: list[float], b: list[float]) -> float:
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += (x - y) ** 2
    return total**0.5


def nearest(points: list[list[float]], point: list[float], k: int) -> list[int]:
    """N_k(q), the k training queries closest to q in terms of Euclidean distance."""
    return sorted(range(len(points)), key=lambda i: euclidean_distance(points[i], point))[:k]


def instances(train: list[Query], numbers: list[int]) -> set[Pair]:
    """S_{N_k(q)}, the union of S_{q'}; footnote 1: "all the document pairs associated with training query q_i"."""
    pairs = set()
    for number in numbers:
        _, grades = train[number]
        for better in range(len(grades)):
            for worse in range(len(grades)):
                if grades[better] > grades[worse]:
                    pairs.add((number, better, worse))
    return pairs


def ranking_svm(train: list[Query], pairs: set[Pair], penalty: float = LAMBDA) -> list[float]:
    """Minimize λ/2 |w|² + 1/p Σ max(0, 1 - w·(better - worse)), by coordinate ascent in the dual.

    The paper names Ranking SVM and λ, but prints no objective: this is the regularized mean of the losses to which its
    stability τ(p) = κ²/(λp) belongs; whether λ or λ/2 is meant is open.
    """
    differences = []
    for number, better, worse in sorted(pairs):
        documents, _ = train[number]
        differences.append([a - b for a, b in zip(documents[better], documents[worse], strict=True)])
    bound = 1.0 / (penalty * len(differences))
    w = [0.0] * len(differences[0])
    dual = [0.0] * len(differences)
    for _ in range(20_000):
        largest_step = 0.0
        for p, difference in enumerate(differences):
            curvature = dot(difference, difference)
            if curvature == 0.0:
                continue
            moved = min(max(dual[p] + (1.0 - dot(w, difference)) / curvature, 0.0), bound)
            step = moved - dual[p]
            if step != 0.0:
                w = [a + step * b for a, b in zip(w, difference, strict=True)]
                dual[p] = moved
                largest_step = max(largest_step, abs(step))
        if largest_step <= 1e-7 * bound:
            break
    return w


def knn_online(train: list[Query], documents: list[Document], reference: int, T: int, k: int) -> list[float]:
    """Figure 3. Returns the scores by which the documents are ranked."""
    # Offline pre-processing.
    points = [query_feature(judged, reference, T) for judged, _ in train]
    # (a), (b), (c), (d)
    point = query_feature(documents, reference, T)
    neighbors = nearest(points, point, k)
    h_q = ranking_svm(train, instances(train, neighbors))
    return [dot(h_q, document) for document in documents]


def offline_training(train: list[Query], reference: int, T: int, k: int) -> tuple[list[set[Pair]], list[list[float]]]:
    """Figure 5, offline training: S_{N_k(q_i)} and h_{q_i} of every training query.

    q_i is in the training data, so it is the nearest of its own neighbors.
    """
    points = [query_feature(judged, reference, T) for judged, _ in train]  # (1)
    training_sets = [instances(train, nearest(points, point, k)) for point in points]  # (2)
    return training_sets, [ranking_svm(train, training_set) for training_set in training_sets]


def knn_offline_1(train: list[Query], documents: list[Document], reference: int, T: int, k: int) -> list[float]:
    """Figure 5."""
    training_sets, models = offline_training(train, reference, T, k)
    points = [query_feature(judged, reference, T) for judged, _ in train]
    point = query_feature(documents, reference, T)  # (a)
    own = instances(train, nearest(points, point, k))  # (b)
    # (c), Eq. 1: the set that shares the largest number of instances. Ties are open: the first.
    best = 0
    for i, training_set in enumerate(training_sets):
        if len(training_set & own) > len(training_sets[best] & own):
            best = i
    return [dot(models[best], document) for document in documents]  # (d)


def knn_offline_2(train: list[Query], documents: list[Document], reference: int, T: int, k: int) -> list[float]:
    """Section 3.3.2: steps (b) and (c) become "find the nearest neighbor of q, denoted as q_{i*}"."""
    _, models = offline_training(train, reference, T, k)
    points = [query_feature(judged, reference, T) for judged, _ in train]
    (best,) = nearest(points, query_feature(documents, reference, T), 1)
    return [dot(models[best], document) for document in documents]


def knn_radius(train: list[Query], documents: list[Document], reference: int, T: int, radius: float) -> list[float]:
    """Section 5, (5): "use a fixed radius in KNN", with a single model if no query is within it (open in the paper)."""
    points = [query_feature(judged, reference, T) for judged, _ in train]
    point = query_feature(documents, reference, T)
    within = [i for i in range(len(train)) if euclidean_distance(points[i], point) <= radius]
    h_q = ranking_svm(train, instances(train, within or list(range(len(train)))))
    return [dot(h_q, document) for document in documents]


def qc(train: list[Query], types: list[str], documents: list[Document], its_type: str) -> list[float]:
    """Section 4.2.1: "we trained one ranking model for each category".

    The classifier is that of another paper, so the type that it gives to the query is an input.
    """
    of_type = [i for i in range(len(train)) if types[i] == its_type]
    model = ranking_svm(train, instances(train, of_type))
    return [dot(model, document) for document in documents]
