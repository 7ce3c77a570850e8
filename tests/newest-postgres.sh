#!/usr/bin/env bash
# Tests the image with the newest Postgres of Debian: `hayward up` in a container is saved with the
# client programs of the image, lost with its state directory, and restored from nothing.
# tests/compose.sh does that with the older server of the stack.
#
#   tests/newest-postgres.sh    after scripts/images.sh
set -euo pipefail
cd "$(dirname "$0")/.."

image=hayward-test/newest-postgres:1
docker build -q -t "$image" - >/dev/null <<DOCKERFILE
FROM hayward:${HAYWARD_VERSION:-latest}
USER root
RUN mkdir -p /etc/postgresql-common \
    && echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf \
    && apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql \
    && rm -rf /var/lib/apt/lists/*
DOCKERFILE

docker run --rm -i --init "$image" bash -s <<'INSIDE'
set -euo pipefail
export HAYWARD_STATE=/var/lib/fleet USER=ada
fail() { echo "FAILED: $*" >&2; cat /tmp/up >&2 || true; exit 1; }

until_true() { # what command...
  local what=$1 begun=$SECONDS
  shift
  until "$@" 2>/dev/null; do
    [ $((SECONDS - begun)) -lt 120 ] || fail "$what: not within 120 s"
    sleep 0.2
  done
}

start() {
  hayward up --agents 1 >/tmp/up 2>&1 &
  up=$!
  until_true "a fleet that is up" test -s "$HAYWARD_STATE/fleet.json"
}

start
server=$(cut -d . -f 1 "$HAYWARD_STATE/pg/data/PG_VERSION")
client=$(/usr/lib/postgresql/*/bin/pg_dump --version | grep -oE '[0-9]+' | head -n 1)
[ "$server" = "$client" ] || fail "the client is $client, and the server $server"
id=$(hayward submit -q --wait --count 2 -- true | head -n 1)
hayward backup /backups/one
kill -9 "$up"
wait "$up" 2>/dev/null || true
# Processes that end with it may still write.
until_true "an empty machine" rm -rf "$HAYWARD_STATE"
hayward restore /backups/one
start
hayward --json job "$id" | tr -d ' \n' | grep -q '"state":"completed"' || fail "$id is not known"
hayward submit -q --wait --count 2 -- true >/dev/null
kill "$up"
wait "$up" || true
echo "a fleet on Postgres $server was lost and restored"
INSIDE
