"""Command lines for those who work on gpu_doctor: `python -m tools.NAME`; the product imports none of them."""
