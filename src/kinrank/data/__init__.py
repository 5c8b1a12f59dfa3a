"""`QuerySet` and the files it is read from and written to."""
