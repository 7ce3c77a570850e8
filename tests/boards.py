#!/usr/bin/env python3
"""Reads the boards with the types that Grafana generates from its schema.

usage: pip install grafana-foundation-sdk && tests/boards.py

The image of Grafana comes from a registry that not every computer reaches. A field that the types do not
know is lost when a board is read and written again, and is reported; so are values that change.
Fields that the schema leaves open are ignored.
"""

import json
import pathlib
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

BOARDS = pathlib.Path(__file__).resolve().parents[1] / "docker/observability/boards"
# Fields of the data source: of an annotation by Prometheus, and the text of a variable's query.
OPEN = {"annotations.list.step", "annotations.list.titleFormat", "templating.list.definition"}


def lost(ours, back, place=""):
    if isinstance(ours, dict) and isinstance(back, dict):
        for key, value in ours.items():
            name = f"{place}.{key}".strip(".")
            if name in OPEN:
                continue
            if key not in back:
                yield f"{name} is not known"
            else:
                yield from lost(value, back[key], name)
    elif isinstance(ours, list) and isinstance(back, list) and len(ours) == len(back):
        for one, other in zip(ours, back):
            yield from lost(one, other, place)
    elif ours != back:
        yield f"{place}: {ours!r} is read as {back!r}"


def main():
    register_default_plugins()
    found = 0
    for path in sorted(BOARDS.glob("*.json")):
        ours = json.loads(path.read_text())
        board = Dashboard.from_json(ours)
        back = json.loads(JSONEncoder().encode(board))
        faults = sorted(set(lost(ours, back)))
        print(f"{path.stem}: {len(board.panels)} panels, {len(faults)} faults")
        for fault in faults:
            print(f"  {fault}")
        found += len(faults)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
