#!/bin/bash
# The part of the official postgres image's entry point that Hayward needs, for the image of
# `base-images.sh`: the same variables, the same first start, the same user.
set -euo pipefail

# Every setting can come from a file, so that no password is in the environment.
from_file() { # NAME default
  local name=$1 file_name=$1_FILE
  if [ -n "${!name:-}" ] && [ -n "${!file_name:-}" ]; then
    echo "error: both $name and $file_name are set" >&2
    exit 1
  fi
  if [ -n "${!file_name:-}" ]; then
    export "$name=$(<"${!file_name}")"
  else
    export "$name=${!name:-$2}"
  fi
  unset "$file_name"
}

case ${1:-postgres} in
  -*) set -- postgres "$@" ;;
  postgres) ;;
  *) exec "$@" ;;
esac

export PGDATA=${PGDATA:-/var/lib/postgresql/data}
if [ "$(id -u)" = 0 ]; then
  mkdir -p "$PGDATA" /var/run/postgresql
  chown -R postgres:postgres "$PGDATA" /var/run/postgresql
  chmod 0700 "$PGDATA"
  exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  from_file POSTGRES_USER postgres
  from_file POSTGRES_DB "$POSTGRES_USER"
  from_file POSTGRES_PASSWORD ""
  from_file POSTGRES_INITDB_ARGS ""
  if [ -z "$POSTGRES_PASSWORD" ]; then
    echo "error: no password for the first start; set POSTGRES_PASSWORD or _FILE" >&2
    exit 1
  fi
  # The arguments are a list by design, as in the official image.
  # shellcheck disable=SC2086
  initdb --username="$POSTGRES_USER" --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") \
    --auth-local=trust --auth-host=scram-sha-256 $POSTGRES_INITDB_ARGS
  printf '\nhost all all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
  # The first server listens on its socket only: no client sees an incomplete database.
  pg_ctl -D "$PGDATA" -w -o "-c listen_addresses=''" start
  if [ "$POSTGRES_DB" != postgres ]; then
    psql -v ON_ERROR_STOP=1 --no-psqlrc -U "$POSTGRES_USER" -d postgres \
      -v name="$POSTGRES_DB" <<<'create database :"name";'
  fi
  for file in /docker-entrypoint-initdb.d/*; do
    # shellcheck disable=SC1090
    case $file in
      *.sh) . "$file" ;;
      *.sql) psql -v ON_ERROR_STOP=1 --no-psqlrc -U "$POSTGRES_USER" -d "$POSTGRES_DB" -f "$file" ;;
    esac
  done
  pg_ctl -D "$PGDATA" -m fast -w stop
fi
unset POSTGRES_PASSWORD POSTGRES_PASSWORD_FILE

# The official image changes the built-in default; Debian's does not listen beyond loopback.
exec "$@" -c listen_addresses='*'
