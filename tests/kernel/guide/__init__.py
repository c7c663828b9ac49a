"""What a newcomer adds with docs/contributing/adding.md alone: one file each of a rule, a knob and a framework."""
