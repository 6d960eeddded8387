"""`mainstem profile`."""
