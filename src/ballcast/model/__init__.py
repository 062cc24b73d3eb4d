"""The networks, from windows of features to slots, and post-processing from slots to predictions."""
