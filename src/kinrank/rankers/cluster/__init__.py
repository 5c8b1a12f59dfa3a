"""`ClusterRanker`: a model per cluster of judged queries, mixed for each query."""
