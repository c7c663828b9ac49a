"""Records one run: taps on torch and the frameworks, the clock of steps, the recorder, and the poller of the probes.

Everything here lives while the user's loop runs, and leaves nothing behind but a recording. It knows nothing of what is
read off that recording: no vitals, no rules, no trials.
"""
