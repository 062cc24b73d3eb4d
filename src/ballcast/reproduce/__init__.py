"""`ballcast reproduce`: from SN-BAA's folder to the paper's table, by the functions behind the other commands."""
