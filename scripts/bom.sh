#!/usr/bin/env bash
# Prints the bill of materials of `hayward` as CycloneDX 1.5 JSON: every linked crate with version,
# licence, checksum and dependencies (S26).
#
# It is made from Cargo.lock and `cargo metadata`, so it needs cargo and python3 only. It has no
# date and no random number: equal inputs give equal bytes.
#
# usage: scripts/bom.sh [TARGET] > bom.json
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-$(rustc -vV | sed -n 's/^host: //p')}
cargo metadata --locked --format-version 1 --filter-platform "$target" |
  python3 scripts/bom.py Cargo.lock
