"""Cards of models and data sets on the hub."""
