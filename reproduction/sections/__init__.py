"""The page, paper by paper: what is shown of the figures of its parts."""
