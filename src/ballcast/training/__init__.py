"""Training: the schedule, one step, an engine of plain functions, and a run that survives being killed."""
