"""Runs one part, in this process: `python -m benchmarks.gpu.one_part NAME --out DIR --seconds N [--rehearse]`."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.kept import FAILED, Stage
from benchmarks.gpu.plan import PARTS


def main(words: Sequence[str]) -> int:
    """Runs it; 1 where it failed, and its file says why."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=[one.name for one in PARTS])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--machine", type=json.loads, default={}, help="as benchmarks.gpu.machine prints it")
    parser.add_argument("--rehearse", action="store_true")
    asked = parser.parse_args(words)
    part = next(one for one in PARTS if one.name == asked.part)
    stage = Stage(part.name, asked.out, asked.machine, asked.seconds, asked.rehearse)
    error = ""
    try:
        importlib.import_module(part.module).run(stage)
    except Exception:
        error = traceback.format_exc()
        print(error, file=sys.stderr)
    return int(stage.end(error) == FAILED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
