"""Matches of Google Research Football as labelled broadcasts: played, filmed, and told in the ten actions."""
