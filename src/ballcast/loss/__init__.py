"""Which slot answers for which event, and what it costs to be wrong."""
