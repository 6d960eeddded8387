"""`mainstem bench`: how fast this machine produces, consumes, and does both."""
