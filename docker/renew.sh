#!/bin/sh
# Tokens are short (decision 0027): prepares again every two hours, so that whoever runs always has
# one that is good. Files are read again without a restart.
#
# usage: renew.sh AGENT...
set -u

trap 'exit 0' TERM INT
while :; do
  # In the background, so that the wish to stop is heard at once.
  sleep 7200 &
  wait $!
  # Postgres may just be starting; then it is tried again, long before a token ends.
  /usr/local/lib/hayward/prepare.sh "$@" || echo "not renewed this time" >&2
done
