"""Many streams: one loaded model for all of them, on one machine or a cluster, with alerts and clips."""
