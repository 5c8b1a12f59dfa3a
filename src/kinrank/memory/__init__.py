"""Memory: who asked, and what was chosen."""
