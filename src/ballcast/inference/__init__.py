"""From a model to what people hand in, watch or count on."""
