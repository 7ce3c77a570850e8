#!/bin/sh
# The database for sqlx's checks at compile time: a private server under target/sqlx-pg with one
# schema for each service, migrated from the migrations in this tree.
#
#   eval "$(scripts/sqlx-database.sh)"    starts it if needed, applies new migrations, sets the
#                                         *_SQLX_URL variables
#   scripts/sqlx-database.sh stop         ends it
#
# Run it again after editing a migration: a schema with changed migrations is rebuilt.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
home=$target/sqlx-pg
program=$target/debug/examples/sqlx_database

mkdir -p "$target"
if [ "${1:-}" = stop ]; then
    [ -f "$home/server.pid" ] || exit 0
    kill "$(cat "$home/server.pid")"
    rm -f "$home/server.pid"
    exit 0
fi

# The program has no queries of its own, so it builds without a database.
cargo build --quiet --manifest-path "$root/Cargo.toml" -p hayward-postgres \
    --example sqlx_database >&2

# `serve` exits at once when another one holds the folder.
if ! { [ -f "$home/server.pid" ] && kill -0 "$(cat "$home/server.pid")" 2>/dev/null; }; then
    # It outlives this call, and must not inherit open files of the caller, such as a lock.
    setsid nohup "$program" serve "$home" >"$target/sqlx-pg.log" 2>&1 </dev/null \
        3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- &
    served=$!
    mkdir -p "$home"
    echo "$served" >"$home/server.pid"
fi
RUST_BACKTRACE=0 exec "$program" apply "$home" "$root"
