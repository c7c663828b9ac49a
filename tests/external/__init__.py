"""Other people's frameworks, run unchanged."""
