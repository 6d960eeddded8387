"""`mainstem demo`."""
