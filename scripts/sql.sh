#!/usr/bin/env bash
# Rebuilds `.sqlx/`, the checked-in answers of the database about every query: migrates a private
# database and compiles against it, each crate as its own role.
#
# The folder is written anew beside the old one and takes its place only when everything compiled,
# so no answer of a query that is gone stays, and a mistake in one query costs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh

mkdir -p target
fresh=$(mktemp -d "$PWD/target/sqlx.XXXXXX")
trap 'rm -rf "$fresh"' EXIT

urls=$(scripts/sqlx-database.sh)
eval "$urls"
unset SQLX_OFFLINE
touch_queries
SQLX_OFFLINE_DIR=$fresh cargo check --workspace --all-targets

chmod 0755 "$fresh"
rm -rf .sqlx
if [ -n "$(ls -A "$fresh")" ]; then mv "$fresh" .sqlx; fi
echo "$(find .sqlx -name 'query-*.json' 2>/dev/null | wc -l) queries in .sqlx"
