"""Jobs that combine several packages: the demo, the reproduction of the paper's table, a training run's report."""
