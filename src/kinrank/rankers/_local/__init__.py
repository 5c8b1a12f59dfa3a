"""What rankers that learn from some of the judged queries share."""
