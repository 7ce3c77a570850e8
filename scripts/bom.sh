#!/usr/bin/env bash
# The bill of materials of what the image runs (S26): every crate that is linked into `hayward`,
# with version, licence, checksum and who needs whom, as CycloneDX 1.5 JSON on standard output.
#
# It is made from Cargo.lock and cargo's own answers, so it needs no tool but cargo and python3, and
# says the same each time: no date, no random number.
#
# usage: scripts/bom.sh [TARGET] > bom.json
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-$(rustc -vV | sed -n 's/^host: //p')}
cargo metadata --locked --format-version 1 --filter-platform "$target" |
  python3 scripts/bom.py Cargo.lock
