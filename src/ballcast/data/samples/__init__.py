"""Windows and batches to train and score on."""
