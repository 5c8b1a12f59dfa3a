"""`KinRanker`, the ranker we recommend: trees that see the query's own model."""
