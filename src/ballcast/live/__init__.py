"""A live session on a stream."""
