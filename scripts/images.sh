#!/usr/bin/env bash
# Makes the image of the compose stack from a program built here, instead of inside a container. It
# is faster, and the only way when containers do not reach the crate registry.
#
# The image has the name that docker-compose.yml uses, so `docker-compose up` takes it.
#
#   scripts/images.sh [DIRECTORY]    with a directory, takes the program from there
set -euo pipefail
cd "$(dirname "$0")/.."

profile=${PROFILE:-release}
built=${1:-}
newest=2.41 # the C library of Debian trixie, the base of the image
here=$(ldd --version | sed -n '1s/.* //p')
if [ "$(printf '%s\n%s\n' "$here" "$newest" | sort -V | tail -n 1)" != "$newest" ]; then
  echo "what is built here needs C library $here, the image has $newest:" \
    "run docker-compose build" >&2
  exit 1
fi

if [ -z "$built" ]; then
  SQLX_OFFLINE=true cargo build --profile "$profile" --locked -p hayward
  built=${CARGO_TARGET_DIR:-target}/$profile
fi
[ -x "$built/hayward" ] || { echo "$built has no program" >&2; exit 1; }

image=hayward:${HAYWARD_VERSION:-latest}
docker build --target runtime -t hayward-runtime:latest .
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir "$context/bin"
# A test build has all its symbols.
strip -o "$context/bin/hayward" "$built/hayward"
# The bill of materials, at the path that the Dockerfile uses (S26).
scripts/bom.sh >"$context/bom.json"
chmod 0644 "$context/bom.json"
cat >"$context/.Dockerfile" <<'END'
FROM hayward-runtime:latest
COPY bom.json /usr/share/hayward/bom.json
LABEL hayward.bom="/usr/share/hayward/bom.json"
COPY bin/ /usr/local/bin/
END
echo .Dockerfile >"$context/.dockerignore"
docker build -f "$context/.Dockerfile" -t "$image" "$context"
echo "$image made from $built"
