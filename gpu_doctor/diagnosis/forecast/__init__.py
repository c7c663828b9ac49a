"""What a change would give, worked out before it is tried."""
