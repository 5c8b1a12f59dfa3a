"""Studies: would per-query ranking pay, which ranker is really better, which settings serve best."""
