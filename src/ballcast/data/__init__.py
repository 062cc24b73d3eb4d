"""Labels, event feeds, samples to train on, and downloads."""
