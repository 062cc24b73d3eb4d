"""The web server of `ballcast serve` and its page."""
