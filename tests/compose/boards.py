#!/usr/bin/env python3
"""Evaluates all expressions of boards and alerts in a Prometheus.

usage: boards.py ADDRESS

Fails when Prometheus refuses an expression, or has no result for one that has a result in every fleet
that ran some work: all its metrics are reported by healthy services (docs/metrics.md: no *rare* ones), it
selects no special values, and it has no comparison.
"""

import json
import pathlib
import re
import sys
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = ROOT / "docker/observability"
# Variables of a board select everything by default.
ALL = {"$__rate_interval": "2m"}
# Labels that boards select by value, and that every fleet has.
USUAL = {"hayward_http_waits", "le", "hayward_round_phase"}


def told():
    """Names in Prometheus that healthy services report."""
    names = set()
    for line in (ROOT / "docs/metrics.md").read_text().splitlines():
        cells = line.split(" | ")
        if not line.startswith("| `") or len(cells) != 7:
            continue
        name, kind, by, what = cells[1].strip("`"), cells[2], cells[5], cells[6]
        if "(rare)" in what or by == "node-agent":
            continue
        ends = ["_bucket", "_sum", "_count"] if kind == "histogram" else [""]
        names.update(name + end for end in ends)
    return names


def questions():
    for path in sorted((HOME / "boards").glob("*.json")):
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield board["title"], panel["title"], target["expr"]
    text = (HOME / "alerts.yml").read_text()
    # The expression of an alert or rule: the lines that are indented further than `expr`.
    for name, expression in re.findall(
        r"- (?:alert|record): (\S+)\n(?:        \S.*\n)*?        expr: \|\n((?: {10}.*\n)+)", text
    ):
        yield "alerts", name, expression


def filled(expression):
    for variable, value in ALL.items():
        expression = expression.replace(variable, value)
    return re.sub(r"\$\w+", ".*", expression)


def ask(address, expression):
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}", timeout=10) as answer:
            return json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        raise SystemExit(f"refused: {expression}\n{error.read().decode()}") from error


def must_answer(expression, known):
    plain = re.sub(r"#.*", "", expression)
    chosen = re.findall(r'(\w+)\s*(?:=|!=|=~|!~)\s*"([^"]*)"', plain)
    special = {label for label, value in chosen if value != ".*"} - USUAL
    bare = re.sub(r"\{[^}]*\}", "", plain)
    names = re.findall(r"\b(?:hayward|http|db)_\w+", re.sub(r"\b(?:by|on)\s*\([^)]*\)", "", bare))
    return bool(names) and set(names) <= known and not special and not re.search(r"[<>=]", bare)


def main():
    address = sys.argv[1]
    known = told()
    answered, asked, lost = {}, {}, []
    for place, title, expression in questions():
        expression = filled(expression)
        series = ask(address, expression)
        asked[place] = asked.get(place, 0) + 1
        answered[place] = answered.get(place, 0) + bool(series)
        if not series and must_answer(expression, known):
            lost.append(f"{place}: {title}: nothing: {expression}")
    for place, count in asked.items():
        print(f"{place}: {answered[place]} of {count} questions have an answer")
    print("\n".join(lost), file=sys.stderr)
    if lost or not all(answered[place] for place in asked if place != "alerts"):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
