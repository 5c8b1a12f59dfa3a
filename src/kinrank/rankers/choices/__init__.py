"""`ChoiceRanker`: rank by what people chose for this query and for similar ones, around any ranker."""
