"""Data sets from the hub: fetched, verified, unpacked."""
