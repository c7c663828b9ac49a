"""What a newcomer adds with CONTRIBUTING.md alone: one file each of a rule, a knob and a framework."""
