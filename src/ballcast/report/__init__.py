"""The HTML report and tables for a terminal."""
