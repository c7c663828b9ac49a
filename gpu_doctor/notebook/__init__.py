"""The only room that knows Jupyter: the magics, the live widget and its page.

Knows every room below and is known by none: it asks trials for runs and report for what to show.
"""

__all__ = ["magic"]
