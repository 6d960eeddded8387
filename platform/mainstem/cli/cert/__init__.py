"""`mainstem cert`: certificates for trying TLS out."""
