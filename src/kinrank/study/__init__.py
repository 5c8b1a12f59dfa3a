"""Studies of a judged collection: headroom, comparison of rankers, reports."""
