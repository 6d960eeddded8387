"""`mainstem quota`: how much of the gateways somebody may use."""
