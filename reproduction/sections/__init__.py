"""The sections of the page, one per paper."""
