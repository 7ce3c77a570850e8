#!/usr/bin/env bash
# Makes a small image from this computer's shell and a few programs with their libraries, for tests
# of the container runtime. It needs no registry, no network and no distribution.
#
#   docker/test-image.sh [TAG]
set -euo pipefail

tag=${1:-hayward-test/shell:1}
programs=(sh cat echo env head id mkdir sleep tr true)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/tmp"
for program in "${programs[@]}"; do
  path=$(type -P "$program")
  cp -L "$path" "$root/bin/$program"
  # `ldd` prints the loader's path, and libraries after an arrow; both are copied to the same path.
  for library in $(ldd "$path" | grep -o '/[^ ]*'); do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
done
chmod 1777 "$root/tmp"
tar -C "$root" --numeric-owner -c . | docker import --change 'ENV PATH=/bin' - "$tag" >/dev/null
echo "$tag made"
