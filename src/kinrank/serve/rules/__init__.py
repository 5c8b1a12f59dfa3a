"""The editor's hand: pins, hides and boosts for a query, and for queries like it, after the model has ranked."""
