"""Predictors, runtimes, submissions, tuning."""
