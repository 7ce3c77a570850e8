#!/bin/sh
# Tokens are short-lived (decision 0027): prepares again every two hours, so that every process has
# a valid one. Files are read again without a restart.
#
# usage: renew.sh AGENT...
set -u

trap 'exit 0' TERM INT
while :; do
  # In the background, so that a stop signal is handled at once.
  sleep 7200 &
  wait $!
  # Postgres may be starting; then it is tried again, long before a token expires.
  /usr/local/lib/hayward/prepare.sh "$@" || echo "not renewed this time" >&2
done
