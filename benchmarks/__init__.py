"""Benchmarks; each module prints its figures."""

from ballcast.core.util import set_thread_defaults

set_thread_defaults()  # as every command does; before torch is imported
