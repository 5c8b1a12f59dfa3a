"""What was judged for similar queries of the same documents, as features of a ranker."""
