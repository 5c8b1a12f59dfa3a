"""Sample documents and features for the engine checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinrank.engines.base import Document

WORDS = ["red", "blue", "green", "old", "fast", "small", "car", "house", "tree", "boat"]
QUERY = "red car"
VECTOR = (0.6, 0.8, 0.0)

FEATURES = """
[search]
multi_match = ["title^2", "body"]
type = "most_fields"

[features]
title = { match = "title" }
title_all = { match = "title", operator = "and", missing = "nan" }
phrase = { phrase = "title", slop = 1 }
anywhere = { multi_match = ["title^2", "body"], type = "most_fields" }
exact = { clause = { term = { title = { value = "red", boost = 2.0 } } }, max = 30.0 }
near = { vector = "embedding" }
far = { vector = "embedding", similarity = "l2", missing = "nan" }
votes = { field = "votes", transform = "log1p" }
price = { field = "price", missing = "nan" }
price_log = { field = "price", transform = "log1p", missing = "nan" }
price_root = { field = "price", transform = "sqrt" }
odd = { script = "doc['votes'].size() == 0 ? 0 : doc['votes'].value % 2 + 0.25 * params.terms" }
sold = { script = "doc['sold'].size() > 0 && doc['sold'].value ? 1 : 0" }
words = { query_length = "words" }
"""
"""A feature file with features of every kind."""


def sample_documents(n: int = 40) -> list[Document]:
    """Return documents "d0", "d1"... Every fifth has no vector, every seventh no price; some prices are negative."""
    rng = np.random.default_rng(7)
    documents: list[Document] = []
    for i in range(n):
        fields: dict[str, Any] = {
            "title": " ".join(rng.choice(WORDS, 1 + i % 4)),
            "body": " ".join(rng.choice(WORDS, 12)),
            "votes": int(rng.integers(0, 1000)),
            "sold": i % 3 == 0,
        }
        if i % 5:
            fields["embedding"] = [round(x, 3) for x in rng.normal(size=3).tolist()]
        if i % 7:
            fields["price"] = round(float(rng.uniform(-5, 50)), 2)
        documents.append((f"d{i}", fields))
    return documents
