"""`mainstem job`."""
