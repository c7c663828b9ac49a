"""What forked processes, such as a loader's workers, tell the process that they come from: lines in one file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class ToldAside:
    """A file in the folder aside, one line of JSON for each thing told; what was heard once is not heard again."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "told"
        self._at = 0

    def tell(self, what: dict[str, Any]) -> None:
        """Adds a line, whole, whoever else adds one meanwhile.

        Raises:
            OSError: if it cannot be written.
        """
        line = json.dumps(what).encode() + b"\n"
        place = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(place, line)
        finally:
            os.close(place)

    def heard(self) -> list[dict[str, Any]]:
        """What was told since the last time, in its order."""
        at = self._at  # another thread may listen too: what both hear is heard twice, and none is cut
        try:
            if self._path.stat().st_size == at:
                return []
            with self._path.open("rb") as file:
                file.seek(at)
                lines = file.read()
        except OSError:  # nobody has told anything
            return []
        whole = lines[: lines.rfind(b"\n") + 1]
        self._at = at + len(whole)
        return [json.loads(line) for line in whole.splitlines()]
