"""Download data sets from the hub: fetch, verify, unpack."""
