"""`ballcast reproduce`: the paper's table from SN-BAA with one command."""
