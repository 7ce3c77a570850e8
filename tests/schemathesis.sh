#!/usr/bin/env bash
# Every route of a running fleet, tried by a program that is not ours: schemathesis makes requests
# from the five descriptions, good ones and bad ones, and compares what comes back with what the
# descriptions promise. All its checks are on; `schemathesis.toml` says which answers it takes for
# right beside those it knows. It still finds things, so `.ci/run` waits. It asks as the operator,
# as a user, as an agent and as a service: each may do something that the others may not.
#
#   tests/schemathesis.sh            bounded: some five minutes
#   HAYWARD_EXAMPLES=100 HAYWARD_SECONDS=300 tests/schemathesis.sh [SERVICE [PRINCIPAL]]
#
# HAYWARD_EXAMPLES bounds the requests per route and phase, HAYWARD_SECONDS each of the 5 x 4 runs.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/steps.sh
. tests/fleet-for-strangers.sh

examples=${HAYWARD_EXAMPLES:-4}
seconds=${HAYWARD_SECONDS:-8}
seed=${HAYWARD_SEED:-7400}
only_service=${1:-} only_principal=${2:-}

place=$target/ci-tools/schemathesis
python_package "$place" schemathesis 4.32.5 ||
  { skipped "schemathesis cannot be installed here"; exit 0; }
place=$(realpath "$place")
trier() { PYTHONPATH=$place python3 -m schemathesis.cli "$@"; }
start_fleet || exit 1

# Something to look at: a job that ran, a service that runs, a block, a job that waits.
seeded() {
  "$HAYWARD" submit -q --count 3 --wait -- echo 'task {task}' &&
    "$HAYWARD" service submit -q --name echo -- sleep 1000 &&
    "$HAYWARD" submit -q --memory 64G -- true &&
    "$HAYWARD" block node-2 --because 'the fan is loud' --for 1h
}
seeded >"$scratch/seeded" 2>&1 || { cat "$scratch/seeded"; exit 1; }

tried() { # service principal token
  [ -z "$only_service" ] || [ "$only_service" = "$1" ] || return 0
  [ -z "$only_principal" ] || [ "$only_principal" = "$2" ] || return 0
  local url log=$scratch/$1-$2.log
  url=$(address "$1")
  (
    cd "$scratch" && cp "$settings" schemathesis.toml &&
      trier run "$url/v1/openapi.json" --url "$url" --checks all \
        --header "Authorization: Bearer $(cat "$(token_file "$3")")" \
        --max-examples "$examples" --max-time "$seconds" --seed "$seed" --workers 2 \
        --request-timeout 40 --continue-on-failure --no-color
  ) >"$log" 2>&1
  local status=$?
  grep -aE '^ +[0-9]+ generated|Test cases|generated,' "$log" | tail -2
  [ "$status" -eq 0 ] || cat "$log"
  return "$status"
}

settings=$PWD/tests/schemathesis.toml
for service in job-converter rm-scheduler container-manager node-status blocklist; do
  for principal in operator:operator user:user-ada agent:agent-node-1 service:rm-scheduler; do
    step "$service, asked by ${principal%%:*}" tried "$service" "${principal%%:*}" "${principal#*:}"
  done
done
verdict
