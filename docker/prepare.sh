#!/bin/sh
# Makes keys, roles and schemas, and gives each container its own files and no others.
#
# Agents run programs of users. With the whole keys directory any job could read the issuer's
# private key and become operator. So each container gets a volume with the public key, the
# authority, its own token, and for a service its certificate and the address of its database role.
#
# usage: prepare.sh AGENT...
set -eu
umask 077

agents=$*
set --
for agent in $agents; do set -- "$@" --agent "$agent"; done
# For Prometheus without a collector: docker/observability/scrape.yml.
asks=/own/keys-prometheus
[ ! -d $asks ] || set -- "$@" --scraper prometheus
# In the environment: every process on the host can read arguments.
HAYWARD_ADMIN_URL=$(cat /secrets/admin.url)
export HAYWARD_ADMIN_URL
hayward prepare --keys /own/keys --user ada --user ben \
  --certificate postgres=/own/keys-postgres --certificate otel-collector=/own/keys-collector "$@"

give() { # volume file...
  to=/own/keys-$1
  shift
  for file in "$@"; do
    mkdir -p "$(dirname "$to/$file")"
    # Written under another name and renamed: running services read some of these files again.
    cp -p "/own/keys/$file" "$to/$file.new"
    mv "$to/$file.new" "$to/$file"
  done
}

common="issuer.pub.pem tls/ca.pem"
for file in revoked tenants; do
  [ ! -e "/own/keys/$file" ] || common="$common $file"
done
for service in job-converter rm-scheduler container-manager node-status blocklist; do
  role=$(echo "$service" | tr - _)
  # shellcheck disable=SC2086
  give "$service" $common "tokens/$service.token" "database/$role.url" \
    "tls/$service.key" "tls/$service.pem"
done
# These services sign tokens: for task runners, enrolled nodes, owners of worker pools.
for service in job-converter node-status rm-scheduler; do give "$service" issuer.pem; done
for agent in $agents; do give "$agent" tls/ca.pem "tokens/agent-$agent.token"; done
if [ -d $asks ]; then
  # It has its own account, and no other container has this volume.
  chmod 0711 $asks
  for file in tls/ca.pem tokens/scraper-prometheus.token; do
    install -d -m 0711 "$asks/${file%/*}"
    install -m 0444 "/own/keys/$file" "$asks/$file.new"
    mv -f "$asks/$file.new" "$asks/$file"
  done
fi
echo "keys, roles and schemas are ready"
