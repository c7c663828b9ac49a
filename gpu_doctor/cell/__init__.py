"""The user's cell as text: what its lines do, and how a change is written into them.

Nothing is run here, and nothing is known of torch beyond the names that people write: every answer is read off the
syntax tree.
"""
