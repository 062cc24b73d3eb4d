"""Videos and event feeds that were sent: kept, computed in turn, rendered."""
