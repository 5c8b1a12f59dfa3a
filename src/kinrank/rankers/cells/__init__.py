"""`CellRanker`: the same from sums over cells of similar queries, for any number of judged queries."""
