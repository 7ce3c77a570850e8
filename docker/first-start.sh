#!/bin/sh
# Runs once, as root, before anything else of the compose stack: makes the database password where
# there is none and gives each volume to the account that uses it. Running it again changes nothing.
#
# /secrets  postgres-password for the account of the postgres image (999), admin.url for `prepare`
# /own/*    volumes that belong to the unprivileged account of this image
set -eu
umask 077

if [ ! -s /secrets/postgres-password ]; then
  # 32 bytes as hexadecimal digits: nothing in it needs quoting in a URL.
  password=$(od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n')
  # Under its final name only when it is whole.
  printf '%s' "$password" >/secrets/postgres-password.new
  mv /secrets/postgres-password.new /secrets/postgres-password
fi
password=$(cat /secrets/postgres-password)
printf 'postgres://postgres:%s@postgres:5432/hayward' "$password" >/secrets/admin.url
chown 999:999 /secrets/postgres-password
chown hayward:hayward /secrets/admin.url
chmod 0400 /secrets/postgres-password /secrets/admin.url
# Passing through is open, reading is up to each file.
chmod 0711 /secrets

for volume in /own/*; do
  chown hayward:hayward "$volume"
  chmod 0700 "$volume"
done
echo "secrets and volumes are ready"
