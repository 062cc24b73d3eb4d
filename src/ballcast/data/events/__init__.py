"""Event feeds of any provider, as grids of the last 30 s."""
