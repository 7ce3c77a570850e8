#!/bin/sh
# Runs once, as root, before anything else of the compose stack: makes the database password where
# there is none and gives each volume to the account that uses it. Running it again changes nothing.
#
# /secrets  postgres-password for the account of the postgres image (999), admin.url for `prepare`
# /secrets-grafana  password of the admin of the boards, for the account of its image (472)
# /own/*    volumes that belong to the unprivileged account of this image
set -eu
umask 077

password_in() { # file
  [ ! -s "$1" ] || return 0
  # 32 bytes as hexadecimal digits: nothing in it needs quoting in a URL. Under its final name
  # only when it is whole.
  od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' >"$1.new"
  mv "$1.new" "$1"
}

password_in /secrets/postgres-password
password=$(cat /secrets/postgres-password)
printf 'postgres://postgres:%s@postgres:5432/hayward' "$password" >/secrets/admin.url
chown 999:999 /secrets/postgres-password
chown hayward:hayward /secrets/admin.url
chmod 0400 /secrets/postgres-password /secrets/admin.url
# Passing through is open, reading is up to each file.
chmod 0711 /secrets

password_in /secrets-grafana/password
chown 472:472 /secrets-grafana /secrets-grafana/password
chmod 0500 /secrets-grafana
chmod 0400 /secrets-grafana/password
# For whoever reads the keys: the command line.
cp /secrets-grafana/password /own/keys/grafana.password
chown hayward:hayward /own/keys/grafana.password

for volume in /own/*; do
  chown hayward:hayward "$volume"
  chmod 0700 "$volume"
done
echo "secrets and volumes are ready"
