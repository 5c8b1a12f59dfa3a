"""`KnnRanker`: a model per query, learned from its nearest judged queries."""
