"""`mainstem user`: those who sign in with a password."""
