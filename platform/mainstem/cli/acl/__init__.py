"""`mainstem acl`."""
