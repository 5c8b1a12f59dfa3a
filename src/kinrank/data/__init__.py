"""Judged queries in and out: `QuerySet` and the files it is read from."""
