"""Jobs that put several packages together: the demo, the reproduction of the paper, a run's report."""
