"""Fuzzing: real files changed at random, driven through the real readers and commands."""
