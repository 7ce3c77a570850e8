#!/bin/sh
# Runs once, as root, before all other containers of the stack. It makes the database password if
# there is none, the authority, and the keys of database and collector. It gives each volume to the
# account that uses it. A second run changes only the certificates.
#
# /secrets  postgres-password for the account of the postgres image (999), admin.url for `prepare`
# /secrets-grafana  password of the admin of the boards, for the account of its image (472)
# /own/*    volumes that belong to the unprivileged account of this image
# /own/keys-postgres, /own/keys-collector  key and certificate of these servers: the key belongs to
#   the
#           account of their image (999, 10001), and `prepare` writes the certificate next to it
set -eu
umask 077

password_in() { # file
  [ ! -s "$1" ] || return 0
  # 32 bytes as hexadecimal digits, which need no quoting in a URL. It gets its final name when it
  # is complete.
  od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' >"$1.new"
  mv "$1.new" "$1"
}

password_in /secrets/postgres-password
password=$(cat /secrets/postgres-password)
# The authority, in the volume of `prepare`, `renew` and the command line.
printf 'postgres://postgres:%s@postgres:5432/hayward?sslmode=verify-full&sslrootcert=%s' \
  "$password" /keys/tls/ca.pem >/secrets/admin.url
chown 999:999 /secrets/postgres-password
chown hayward:hayward /secrets/admin.url
chmod 0400 /secrets/postgres-password /secrets/admin.url
# The folder may be entered; each file has its own permissions.
chmod 0711 /secrets

password_in /secrets-grafana/password
chown 472:472 /secrets-grafana /secrets-grafana/password
chmod 0500 /secrets-grafana
chmod 0400 /secrets-grafana/password
# Read by the command line.
cp /secrets-grafana/password /own/keys/grafana.password
chown hayward:hayward /own/keys/grafana.password

# Postgres speaks TLS from its first start, before `prepare` has a database.
hayward prepare --keys /own/keys --certificate postgres=/own/keys-postgres \
  --certificate otel-collector=/own/keys-collector >/dev/null
chown -R hayward:hayward /own/keys

key_for() { # account volume name
  install -o "$1" -g "$1" -m 0400 "/own/keys/tls/$3.key" "$2/$3.key.new"
  mv -f "$2/$3.key.new" "$2/$3.key"
}
key_for 999 /own/keys-postgres postgres
key_for 10001 /own/keys-collector otel-collector
install -m 0444 /usr/local/lib/hayward/pg_hba.conf /own/keys-postgres/pg_hba.conf

for volume in /own/*; do
  case $volume in
    # The other account enters the folder.
    /own/keys-postgres | /own/keys-collector) mode=0711 ;;
    *) mode=0700 ;;
  esac
  chown hayward:hayward "$volume"
  chmod "$mode" "$volume"
done
echo "secrets and volumes are ready"
