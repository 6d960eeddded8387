"""`mainstem topic`."""
