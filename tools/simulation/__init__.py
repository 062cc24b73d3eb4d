"""Matches of Google Research Football as labelled broadcasts: played, recorded, and labelled with the ten actions."""
