#!/usr/bin/env bash
# Makes local replacements of the official base images, under their official names, for computers
# that reach Debian's mirror but no image registry. With a registry, `docker-compose build` pulls
# the real ones.
#
#   docker/base-images.sh [--force] [debian] [rust] [postgres] [prometheus]
#
# An existing image is kept unless `--force` is given, so a real one is never replaced by accident.
# Needs root, debootstrap, and for `rust` a rustup toolchain to copy.
set -euo pipefail
cd "$(dirname "$0")"

suite=trixie
# The server version of the stack: existing databases have it.
postgres_suite=bookworm
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
rust_version=1.95
postgres_major=15
prometheus_version=2.53.3
force=no
wanted=()
for argument in "$@"; do
  case $argument in
    --force) force=yes ;;
    debian | rust | postgres | prometheus) wanted+=("$argument") ;;
    *) echo "unknown argument: $argument" >&2; exit 2 ;;
  esac
done
[ ${#wanted[@]} -gt 0 ] || wanted=(debian rust postgres)
[ "$(id -u)" = 0 ] || { echo "debootstrap needs root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "install debootstrap first" >&2; exit 1; }

scratch=$(mktemp -d)
# An interrupted debootstrap may leave something mounted.
leave() {
  umount -q "$scratch"/*/{proc,sys} 2>/dev/null || true
  rm -rf --one-file-system "$scratch"
}
trap leave EXIT

# A Debian tree of the named packages with security updates, without the files that a slim image
# omits.
tree() { # directory package...
  local root=$1; shift
  local include suite=${suite_of_tree:-$suite}
  include=$(IFS=,; echo "$*")
  debootstrap --variant=minbase ${include:+"--include=$include"} "$suite" "$root" "$mirror" \
    >"$scratch/debootstrap.log" 2>&1 || { tail -n 20 "$scratch/debootstrap.log" >&2; exit 1; }
  cat >"$root/etc/apt/sources.list" <<LIST
deb $mirror $suite main
deb $mirror $suite-updates main
deb ${mirror%/debian}/debian-security $suite-security main
LIST
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # Packages must not start daemons while they are being unpacked.
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
  chmod +x "$root/usr/sbin/policy-rc.d"
  DEBIAN_FRONTEND=noninteractive chroot "$root" sh -c \
    'apt-get update -qq && apt-get -y -qq upgrade && apt-get clean' \
    >>"$scratch/debootstrap.log" 2>&1 || { tail -n 20 "$scratch/debootstrap.log" >&2; exit 1; }
  rm -rf "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,info,locale}/* \
    "$root"/var/cache/{apt,debconf}/* "$root"/var/log/*.log "$root/etc/resolv.conf"
}

import() { # directory tag change...
  local root=$1 tag=$2; shift 2
  local changes=()
  for change in "$@"; do changes+=(--change "$change"); done
  tar -C "$root" --numeric-owner --one-file-system -c . \
    | docker import "${changes[@]}" - "$tag" >/dev/null
  rm -rf --one-file-system "$root"
  echo "$tag made"
}

needed() { # tag
  [ "$force" = yes ] && return 0
  if docker image inspect "$1" >/dev/null 2>&1; then echo "$1 is already here"; return 1; fi
}

make_debian() {
  needed "debian:$suite-slim" || return 0
  tree "$scratch/debian"
  import "$scratch/debian" "debian:$suite-slim" 'CMD ["bash"]'
}

make_rust() {
  needed "rust:$rust_version-$suite" || return 0
  local toolchain root=$scratch/rust
  toolchain=$(rustc --print sysroot)
  case $(rustc --version) in
    "rustc $rust_version."*) ;;
    *) echo "the toolchain here is $(rustc --version), not $rust_version" >&2; exit 1 ;;
  esac
  tree "$root" ca-certificates gcc g++ libc6-dev make pkg-config git curl
  mkdir -p "$root/usr/local/rustup/toolchains" "$root/usr/local/cargo"
  tar -C "$toolchain" --exclude=share/doc --exclude=share/man -c . \
    | tar -C "$root/usr/local" --no-same-owner -x
  # The host's trust store is copied too: behind a proxy that re-signs TLS, the container could not
  # reach the crate registry without it.
  cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  import "$root" "rust:$rust_version-$suite" \
    'ENV PATH=/usr/local/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
    'ENV CARGO_HOME=/usr/local/cargo' "ENV RUST_VERSION=$rust_version" 'CMD ["bash"]'
}

make_postgres() {
  needed "postgres:$postgres_major" || return 0
  local root=$scratch/postgres
  suite_of_tree=$postgres_suite tree "$root" adduser locales passwd util-linux
  # As in the official image: user 999, and no cluster made by the package itself.
  chroot "$root" groupadd -r --gid 999 postgres
  chroot "$root" useradd -r --uid 999 --gid 999 --home-dir /var/lib/postgresql \
    --shell /bin/bash postgres
  mkdir -p "$root/etc/postgresql-common"
  echo 'create_main_cluster = false' >"$root/etc/postgresql-common/createcluster.conf"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  DEBIAN_FRONTEND=noninteractive chroot "$root" sh -c \
    "localedef -i en_US -c -f UTF-8 -A /usr/share/locale/locale.alias en_US.UTF-8
     apt-get update -qq && apt-get install -y -qq --no-install-recommends \
       postgresql-$postgres_major && apt-get clean" \
    >"$scratch/apt.log" 2>&1 || { tail -n 20 "$scratch/apt.log" >&2; exit 1; }
  rm -rf "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,info}/* "$root/etc/resolv.conf"
  mkdir -p "$root/var/lib/postgresql/data" "$root/docker-entrypoint-initdb.d"
  chroot "$root" chown -R postgres:postgres /var/lib/postgresql /var/run/postgresql
  install -m 0755 postgres-entrypoint.sh "$root/usr/local/bin/docker-entrypoint.sh"
  local bin=/usr/lib/postgresql/$postgres_major/bin
  import "$root" "postgres:$postgres_major" \
    "ENV PATH=$bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    'ENV LANG=en_US.utf8' 'ENV PGDATA=/var/lib/postgresql/data' \
    'VOLUME /var/lib/postgresql/data' 'EXPOSE 5432' \
    'ENTRYPOINT ["docker-entrypoint.sh"]' 'CMD ["postgres"]'
  # `docker import` sets no stop signal. Without this one the server waits for its clients until it
  # is killed.
  printf 'FROM postgres:%s\nSTOPSIGNAL SIGINT\n' "$postgres_major" \
    | docker build -q -t "postgres:$postgres_major" - >/dev/null
}

# Version and tag are Debian's: PROMETHEUS_VERSION=v2.53.3 makes the stack take it.
make_prometheus() {
  needed "prom/prometheus:v$prometheus_version" || return 0
  docker build -q -t "prom/prometheus:v$prometheus_version" - >/dev/null <<DOCKERFILE
FROM debian:$suite-slim
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus \
    && apt-get clean && rm -rf /var/lib/apt/lists/* && install -d -o nobody -g nogroup /prometheus
RUN prometheus --version 2>&1 | grep -q 'version $prometheus_version'
USER nobody
WORKDIR /prometheus
VOLUME /prometheus
EXPOSE 9090
ENTRYPOINT ["/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
DOCKERFILE
  echo "prom/prometheus:v$prometheus_version made"
}

for image in "${wanted[@]}"; do "make_$image"; done
