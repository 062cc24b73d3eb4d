"""Matching of slots with events, and the criterion."""
