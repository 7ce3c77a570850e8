#!/usr/bin/env bash
# Upgrades a fleet from another version to this one and back, one process after the other, while
# work runs. The other version is built from its own sources.
#
#   tests/upgrade.sh [COMMIT]        default: the last earlier commit that changed a service
#
# Not part of CI: building two versions takes longer than everything else.
set -euo pipefail
cd "$(dirname "$0")/.."

before=${1:-$(git log -2 --format=%H -- services shared | tail -n 1)}
commit=$(git rev-parse --verify "$before^{commit}")
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
sources=$(mktemp -d)
trap 'git worktree remove --force "$sources/before"; rmdir "$sources"' EXIT
export SQLX_OFFLINE=true

git worktree add --quiet --detach "$sources/before" "$commit"
(cd "$sources/before" && CARGO_TARGET_DIR=$target/before cargo build --locked -p hayward)
echo "from $(git log -1 --format='%h %s' "$commit") to $(git log -1 --format='%h %s') and back"
cargo run --locked -p hayward-tests-fleet --example upgrade -- "$target/before/debug/hayward"
