"""A run, its engine, steps, schedules and checkpoints."""
