"""The paper on local models with rank aggregation (LETOR 4.0), written down from its text alone.

Our copy is garbled in its three algorithms; where it is, a comment marks our reading ("reading:"). RankSVM, and what a
query is, are those of `geng`: documents and grades; a grade of 1 or more is relevant.
"""

from __future__ import annotations

import math
import statistics

from tests.papers.transcriptions.geng import Document, Query, dot, euclidean_distance, instances, ranking_svm

Vector = list[float]


def mean(vectors: list[Vector]) -> Vector:
    return [sum(values) / len(vectors) for values in zip(*vectors, strict=True)]


def closest(centers: list[Vector], point: Vector) -> int:
    return min(range(len(centers)), key=lambda i: euclidean_distance(centers[i], point))


def two_means(points: list[Vector]) -> list[int]:
    """K-means with Euclidean distance and two clusters: of all starts at two of the points, the best."""
    best, best_error = [0] * len(points), math.inf
    for first in range(len(points)):
        for second in range(first):
            centers, labels = [points[second], points[first]], [-1] * len(points)
            while True:
                moved = [closest(centers, point) for point in points]
                if moved == labels or len(set(moved)) < 2:
                    break
                labels = moved
                centers = [mean([p for p, own in zip(points, labels, strict=True) if own == i]) for i in (0, 1)]
            if -1 in labels:
                continue
            error = sum(euclidean_distance(centers[own], p) ** 2 for p, own in zip(points, labels, strict=True))
            if error < best_error - 1e-9:
                best, best_error = labels, error
    return best


def train_models(train: list[Query], labels: list[int]) -> list[Vector]:
    """Section 2.1: "use RankSVM to train local models from the individual clusters"."""
    models = []
    for cluster in (0, 1):
        members = [q for q, label in enumerate(labels) if label == cluster]
        models.append(ranking_svm(train, instances(train, members)))
    return models


def global_model(train: list[Query]) -> Vector:
    return ranking_svm(train, instances(train, list(range(len(train)))))


def aggregate(weights: list[float], models: list[Vector], documents: list[Document]) -> list[float]:
    """Eq. 1: the score of d is Σ_i weight_i s_i(d). Reading: the weights of a query are divided by their sum."""
    total = sum(weights)
    scores = []
    for document in documents:
        score = 0.0
        for weight, model in zip(weights, models, strict=True):
            score += weight / total * dot(model, document)
        scores.append(score)
    return scores


def top(documents: list[Document], model: Vector, t: int) -> list[int]:
    return sorted(range(len(documents)), key=lambda d: -dot(model, documents[d]))[:t]


def clusters_of_relevant(train: list[Query]) -> tuple[list[int], list[Vector]]:
    """Algorithm 1: cluster the relevant query-document pairs; a query goes where most of its own are (reading).

    A cluster is represented by the mean of the relevant vectors of its queries.
    """
    owners, points = [], []
    for q, (documents, grades) in enumerate(train):
        for document, grade in zip(documents, grades, strict=True):
            if grade >= 1:
                owners.append(q)
                points.append(document)
    of_point = two_means(points)
    labels = []
    for q in range(len(train)):
        votes = [
            sum(1 for owner, label in zip(owners, of_point, strict=True) if (owner, label) == (q, i)) for i in (0, 1)
        ]
        labels.append(0 if votes[0] >= votes[1] else 1)
    centers = [mean([p for p, owner in zip(points, owners, strict=True) if labels[owner] == i]) for i in (0, 1)]
    return labels, centers


def naive(train: list[Query], documents: list[Document], t: int) -> list[float]:
    """Algorithm 1: "use the global RankSVM model to find query's top-t"; the most similar cluster's model ranks."""
    labels, centers = clusters_of_relevant(train)
    query = mean([documents[d] for d in top(documents, global_model(train), t)])
    weights = [0.0, 0.0]
    weights[closest(centers, query)] = 1.0
    return aggregate(weights, train_models(train, labels), documents)


def unit(scores: list[float]) -> list[float]:
    """Reading: scores are scaled to 0..1 within a query before they are compared between models."""
    low, high = min(scores), max(scores)
    return [(score - low) / (high - low) for score in scores]


def divergence(scores: list[float], base: list[float]) -> float:
    """Eq. 2: Σ_d p_i(d) log(p_i(d) / p_b(d)). Reading: p is the softmax of the unit scores."""
    p = [math.exp(score) for score in unit(scores)]
    p_b = [math.exp(score) for score in unit(base)]
    total = 0.0
    for one, other in zip(p, p_b, strict=True):
        total += one / sum(p) * math.log((one / sum(p)) / (other / sum(p_b)))
    return total


def average_precision(scores: list[float], grades: list[float]) -> float:
    ranked = sorted(range(len(scores)), key=lambda d: -scores[d])
    relevant, total = 0, 0.0
    for position, d in enumerate(ranked, start=1):
        if grades[d] >= 1:
            relevant += 1
            total += relevant / position
    return total / relevant


def select_ranker(train: list[Query], documents: list[Document], bm25: int, k: int) -> list[float]:
    """Algorithm 2: "the weight of cluster i is determined by the top-k most similar queries in this cluster"."""
    labels, _ = clusters_of_relevant(train)
    models = train_models(train, labels)
    distances, precisions = [], []
    own = [divergence([dot(m, d) for d in documents], [d[bm25] for d in documents]) for m in models]
    for (judged, grades), label in zip(train, labels, strict=True):
        scores = [dot(models[label], d) for d in judged]
        distances.append(abs(own[label] - divergence(scores, [d[bm25] for d in judged])))
        precisions.append(average_precision(scores, grades))
    limit = statistics.median(distances)  # reading of step 3, which "filters out non-relevant queries"
    weights = []
    for cluster in (0, 1):
        members = sorted((q for q in range(len(train)) if labels[q] == cluster), key=lambda q: distances[q])
        near = [q for q in members[:k] if distances[q] <= limit]
        weights.append(sum(precisions[q] for q in near))  # step 4: "sums the confidences"
    return aggregate(weights, models, documents)


def transformed(documents: list[Document], model: Vector, bm25: int, t: int) -> Vector:
    """Algorithm 3: a query as two numbers, from BM25 and the global RankSVM. Reading: means of unit scores."""
    by_model, by_bm25 = unit([dot(model, d) for d in documents]), unit([d[bm25] for d in documents])
    best = top(documents, model, t)
    return [sum(by_bm25[d] for d in best) / len(best), sum(by_model[d] for d in best) / len(best)]


def transform(train: list[Query], documents: list[Document], bm25: int, t: int) -> list[float]:
    """Algorithm 3. Reading: the weights are the softmax of minus the distances to the centers."""
    model = global_model(train)
    points = [transformed(judged, model, bm25, t) for judged, _ in train]
    labels = two_means(points)
    centers = [mean([p for p, own in zip(points, labels, strict=True) if own == i]) for i in (0, 1)]
    query = transformed(documents, model, bm25, t)
    weights = [math.exp(-euclidean_distance(query, center)) for center in centers]
    return aggregate(weights, train_models(train, labels), documents)
