"""Processes that read files of strangers: confined, with bounds on memory and time."""
