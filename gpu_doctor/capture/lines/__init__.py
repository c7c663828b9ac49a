"""Which lines of the user's code the time goes to: looks at the stack, and where they are kept."""
