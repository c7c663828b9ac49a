"""What two runs say together: their ratio with its interval, their losses, their pairs."""
