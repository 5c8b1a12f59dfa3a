"""A movie search in the browser that shows what kinrank does: ``kinrank demo``."""
