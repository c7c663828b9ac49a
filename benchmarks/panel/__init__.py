"""What the panel costs in page and kernel: under load, over a long loop, on the wire, and when a cell is run again."""
