"""`mainstem group`."""
