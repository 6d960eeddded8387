"""`mainstem sql`"""
