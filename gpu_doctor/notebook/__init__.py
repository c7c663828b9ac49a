"""The only package that knows Jupyter: the magics, the live widget and its page.

It may import every package below and none of them imports it. Runs come from `trials`, the content of panel and result
from `report`.
"""

__all__ = ["magic"]
