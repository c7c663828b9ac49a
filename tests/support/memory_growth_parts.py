"""What the tests of memory growth share."""

from __future__ import annotations

RULE = "memory-growth"
