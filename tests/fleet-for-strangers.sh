# Sourced by the tests with foreign programs: starts a fleet on free ports of loopback with its
# state in `$scratch`, ends it, and prints addresses of services.
# shellcheck shell=bash

target=${CARGO_TARGET_DIR:-target}
scratch=$(mktemp -d)
# The account of Postgres enters this folder for its own.
chmod 0711 "$scratch"
fleet=
export HAYWARD_STATE=$scratch/state USER=ada PYTHONDONTWRITEBYTECODE=1

leave() {
  local status=$?
  trap - EXIT INT TERM
  if [ -n "$fleet" ]; then kill "$fleet" 2>/dev/null; wait "$fleet" 2>/dev/null; fi
  rm -rf "$scratch"
  exit "$status"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Installs a Python program into its own folder, so that its dependencies conflict with nothing.
# Fails without a network.
python_package() { # place package version, and pinned dependencies
  local place=$1 package=$2 version=$3
  shift 3
  [ -d "$place/${package//-/_}" ] || timeout 180 python3 -m pip install --quiet --upgrade \
    --disable-pip-version-check --root-user-action=ignore --target "$place" \
    "$package==$version" "$@" >"$scratch/pip" 2>&1
}

# The first of five free ports in a row.
free_ports() {
  python3 - <<'PYTHON'
import random, socket
while True:
    first, held = random.randrange(20000, 32000), []
    try:
        for port in range(first, first + 5):
            held.append(socket.create_server(("127.0.0.1", port)))
    except OSError:
        continue
    finally:
        [one.close() for one in held]
    print(first)
    break
PYTHON
}

start_fleet() {
  if [ -z "${HAYWARD:-}" ]; then
    HAYWARD=$target/debug/hayward
    cargo build --quiet --locked -p hayward || return 1
  fi
  "$HAYWARD" up --port "$(free_ports)" --agents 2 >"$scratch/up" 2>&1 &
  fleet=$!
  for _ in $(seq 240); do
    [ ! -s "$HAYWARD_STATE/fleet.json" ] || return 0
    kill -0 "$fleet" 2>/dev/null || break
    sleep 0.5
  done
  cat "$scratch/up"
  return 1
}

address() { # service
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' \
    "$HAYWARD_STATE/fleet.json" "$1"
}

token_file() { # name
  echo "$HAYWARD_STATE/keys/tokens/$1.token"
}
