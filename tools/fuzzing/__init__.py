"""Fuzzing: real files changed at random, driven through the real readers and commands. `python -m tools.fuzz --help`."""
