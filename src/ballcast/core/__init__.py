"""Shared records: actions, events and clips (times in ms), config, errors, files. No torch, no video."""
