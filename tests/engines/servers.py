"""Addresses of the test servers, and the vector field type of each."""

from __future__ import annotations

ADDRESSES = {
    "elasticsearch": "elasticsearch+http://127.0.0.1:9200",
    "opensearch": "opensearch+http://127.0.0.1:9210",
}

VECTORS = {
    "elasticsearch": lambda dims: {"type": "dense_vector", "dims": dims, "index": True, "similarity": "cosine"},
    "opensearch": lambda dims: {
        "type": "knn_vector",
        "dimension": dims,
        "method": {"name": "hnsw", "engine": "lucene", "space_type": "cosinesimil"},
    },
}
