"""`mainstem pipeline`"""
