#!/bin/sh
# Makes keys, roles and schemas, then hands each container what is its own and nothing more.
#
# Agents run other people's programs. If they saw the whole keys directory, any job could read the
# issuer's private key and make itself operator; so each container gets a volume with the public
# key, the authority behind certificates, its own token, and for a service its own certificate and
# the address of its own database role.
#
# usage: prepare.sh AGENT...
set -eu
umask 077

agents=$*
set --
for agent in $agents; do set -- "$@" --agent "$agent"; done
# Where Prometheus asks the services itself: docker/observability/scrape.yml.
asks=/own/keys-prometheus
[ ! -d $asks ] || set -- "$@" --scraper prometheus
# In the environment and not among the arguments, which every process on the host can read.
HAYWARD_ADMIN_URL=$(cat /secrets/admin.url)
export HAYWARD_ADMIN_URL
hayward prepare --keys /own/keys --user ada --user ben \
  --certificate postgres=/own/keys-postgres --certificate otel-collector=/own/keys-collector "$@"

give() { # volume file...
  to=/own/keys-$1
  shift
  for file in "$@"; do
    mkdir -p "$(dirname "$to/$file")"
    # Beside and renamed, for a service that is running reads some of these again.
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
# These sign tokens themselves: for runners of jobs, nodes that enrol, owners of worker pools.
for service in job-converter node-status rm-scheduler; do give "$service" issuer.pem; done
for agent in $agents; do give "$agent" tls/ca.pem "tokens/agent-$agent.token"; done
if [ -d $asks ]; then
  # It has an account of its own, and nobody else sees this volume.
  chmod 0711 $asks
  for file in tls/ca.pem tokens/scraper-prometheus.token; do
    install -d -m 0711 "$asks/${file%/*}"
    install -m 0444 "/own/keys/$file" "$asks/$file.new"
    mv -f "$asks/$file.new" "$asks/$file"
  done
fi
echo "keys, roles and schemas are ready"
