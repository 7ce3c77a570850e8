#!/usr/bin/env bash
# Checks before a commit: `just check`, and the first part of `.ci/run`.
#
# Every step runs even after a failure, so that one run shows all failures.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/steps.sh

# Queries are checked against the checked-in data and never against a running database. Cargo does
# not see that difference: a crate that was compiled against a live database would pass unchecked.
# So its files are touched.
export SQLX_OFFLINE=true
touch_queries

deny() {
  if ! command -v cargo-deny >/dev/null; then
    skipped "cargo-deny is not installed (cargo install cargo-deny)"
    return 0
  fi
  cargo deny check --hide-inclusion-graph bans licenses sources
}

# The database of advisories is a repository on GitHub, which may be unreachable.
advisories() {
  if ! command -v cargo-deny >/dev/null; then
    skipped "cargo-deny is not installed (cargo install cargo-deny)"
    return 0
  fi
  if ! timeout 60 cargo deny fetch db >/dev/null 2>&1; then
    skipped "the database of advisories cannot be fetched from here"
    return 0
  fi
  cargo deny check --hide-inclusion-graph advisories
}

step "format" cargo fmt --all --check
step "clippy, with the checked-in query data" \
  cargo clippy --workspace --all-targets --locked -- -D warnings
step "bans, licences, sources" deny
step "advisories" advisories
# In CI they run with all other tests.
[ -n "${CI:-}" ] || step "the house: arrows, sizes, documents, commands" \
  cargo test --locked -p hayward-tests-house --no-fail-fast
verdict
