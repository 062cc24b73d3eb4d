"""The backbone, shared stacks, the feature store, extraction."""
