#!/usr/bin/env bash
# Rebuilds `.sqlx/`, the checked-in description of every query: migrates a private database and
# compiles against it, each crate with its own role.
#
# The new folder replaces the old one when everything compiled. So descriptions of removed queries
# go, and an error in one query changes nothing.
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
