"""Writes the table of rules into README.md, between its two markers: `python -m tests.support.readme_rules`."""

from __future__ import annotations

from gpu_doctor.diagnosis.rules import table_markdown
from tests.support.repository import ROOT

README = ROOT / "README.md"
MARK = "<!-- rules -->"


def main() -> None:
    """Replaces the table."""
    before, _, after = README.read_text().split(MARK)
    README.write_text(f"{before}{MARK}\n{table_markdown().strip()}\n{MARK}{after}")


if __name__ == "__main__":
    main()
