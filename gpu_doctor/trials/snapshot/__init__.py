"""What a trial may change, kept before it and put back after it."""
