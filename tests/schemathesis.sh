#!/usr/bin/env bash
# Every route of a running fleet, tried by a program that is not ours: schemathesis makes requests
# from the five descriptions, good ones and bad ones, and compares what comes back with what the
# descriptions promise. All its checks are on; `schemathesis.toml` says which refusals it takes for
# right, route by route. It asks as the operator, as a service, as an agent and as a user: each may
# do something that the others may not.
#
#   tests/schemathesis.sh            bounded, from one seed: some four minutes
#   HAYWARD_EXAMPLES=100 HAYWARD_SECONDS=900 HAYWARD_WAITS=yes HAYWARD_SEED=$RANDOM \
#     tests/schemathesis.sh [SERVICE [PRINCIPAL]]
#
# HAYWARD_EXAMPLES bounds the requests per route and phase, HAYWARD_SECONDS each principal's time.
# Without HAYWARD_WAITS no request asks to wait for news: nothing else is left out by that, and the
# time is spent on asking.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/steps.sh
. tests/fleet-for-strangers.sh

examples=${HAYWARD_EXAMPLES:-2}
seed=${HAYWARD_SEED:-7400}
only_service=${1:-} only_principal=${2:-}

place=$target/ci-tools/schemathesis
python_package "$place" schemathesis 4.32.5 ||
  { skipped "schemathesis cannot be installed here"; verdict; exit; }
place=$(realpath "$place")
trier() { PYTHONPATH=$place python3 -m schemathesis.cli "$@"; }

# Something to look at: a job that ran, a service that runs, a block, a job that waits.
seeded() {
  start_fleet && {
    "$HAYWARD" submit -q --count 3 --wait -- echo 'task {task}' &&
      "$HAYWARD" service submit -q --name echo -- sleep 1000 &&
      "$HAYWARD" submit -q --memory 64G -- true &&
      "$HAYWARD" block node-2 --because 'the fan is loud' --for 1h
  } >"$scratch/seeded" 2>&1 || { cat "$scratch/seeded"; return 1; }
}

waits() {
  [ -n "${HAYWARD_WAITS:-}" ] ||
    printf '\n[parameters]\n"query.wait" = 0\n"query.wait_ms" = 0\n"query.min_revision" = 0\n'
}

# One worker each: with more, the generator breaks off now and then inside Python's own parser.
tried() { # service token seconds
  local url here=$scratch/$1-$2
  url=$(address "$1")
  mkdir "$here" && cd "$here" && { cat "$settings"; waits; } >schemathesis.toml &&
    trier run "$url/v1/openapi.json" --url "$url" --checks all \
      --header "Authorization: Bearer $(cat "$(token_file "$2")")" \
      --max-examples "$examples" --max-time "$3" --seed "$seed" --workers 1 \
      --request-timeout 40 --continue-on-failure --no-color >log 2>&1
}

# All five at once: they wait for different services most of the time.
asked_by() { # principal token seconds
  local service failed=0 services=() pids=()
  for service in job-converter rm-scheduler container-manager node-status blocklist; do
    [ -z "$only_service" ] || [ "$only_service" = "$service" ] || continue
    (tried "$service" "$2" "${HAYWARD_SECONDS:-$3}") &
    services+=("$service") pids+=($!)
  done
  for at in "${!pids[@]}"; do
    local log=$scratch/${services[$at]}-$2/log
    if wait "${pids[$at]}"; then
      printf '%s: %s\n' "${services[$at]}" "$(grep -aE '^ +[0-9]+ generated' "$log")"
    else
      cat "$log"
      failed=1
    fi
  done
  return "$failed"
}

settings=$PWD/tests/schemathesis.toml
step "a fleet" seeded
[ ${#failed_steps[@]} -eq 0 ] || { verdict; exit; }
for each in operator:operator:75 service:rm-scheduler:45 agent:agent-node-1:30 user:user-ada:30; do
  IFS=: read -r principal token seconds <<<"$each"
  [ -z "$only_principal" ] || [ "$only_principal" = "$principal" ] || continue
  step "all routes, asked by the $principal" asked_by "$principal" "$token" "$seconds"
done
verdict
