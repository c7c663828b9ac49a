"""The device's own clock: events on its stream, read later and never waited for."""
