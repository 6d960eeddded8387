"""`mainstem gateway`."""
