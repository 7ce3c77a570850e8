#!/usr/bin/env bash
# Calls every route of a running fleet with schemathesis. It makes valid and invalid requests from
# the five descriptions and compares the answers with them. All its checks are on for all routes:
# `schemathesis.toml` names no route. An operator and a user call everything. A service, an agent,
# an orchestrator, the owner of a worker pool and the runner of a job call what their scopes permit
# (S6).
#
#   tests/schemathesis.sh            the same requests each time
#   HAYWARD_EXAMPLES=100 HAYWARD_SECONDS=900 HAYWARD_WAIT=2 HAYWARD_SEED=$RANDOM HAYWARD_ALL=yes \
#     tests/schemathesis.sh [SERVICE [PRINCIPAL]]
#
# With HAYWARD_ALL every caller calls everything, which takes about ten minutes. HAYWARD_EXAMPLES is
# the most random requests for a route, in addition to those that follow from its description.
# HAYWARD_SEED makes other requests, and HAYWARD_SECONDS limits the time for each service. Long
# polls wait for HAYWARD_WAIT seconds, and not at all without it.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/steps.sh
. tests/fleet-for-strangers.sh

examples=${HAYWARD_EXAMPLES:-1}
only_service=${1:-} only_principal=${2:-}

# The generator of requests is pinned too: another version makes other requests.
place=$target/ci-tools/schemathesis
python_package "$place" schemathesis 4.32.5 hypothesis==6.170.17 jsonschema_rs==0.60.3 ||
  { skipped "schemathesis cannot be installed here"; verdict; exit; }
place=$(realpath "$place")
trier() { PYTHONPATH=$place python3 -m schemathesis.cli "$@"; }

ordered() { # service path body
  curl --silent --show-error --fail --max-time 20 "$(address "$1")$2" --data "$3" \
    -H "Authorization: Bearer $(cat "$(token_file operator)")" \
    -H 'Content-Type: application/json' -H "Idempotency-Key: $RANDOM-$RANDOM"
}

# The token of a runner, as its node's agent gets it (decision 0005).
runner_token() {
  python3 - "$(address container-manager)" "$HAYWARD_STATE/keys/tokens" <<'PYTHON'
import json, sys, time, urllib.request
url, tokens = sys.argv[1:]
until = time.monotonic() + 60
while time.monotonic() < until:
    for node in ("node-1", "node-2"):
        with open(f"{tokens}/agent-{node}.token") as file:
            headers = {"Authorization": f"Bearer {file.read().strip()}"}
        ask = urllib.request.Request(f"{url}/v1/desired/{node}/publication", headers=headers)
        for entry in json.load(urllib.request.urlopen(ask, timeout=20))["changed"].values():
            program = (entry.get("launch") or {}).get("program", {})
            if program.get("kind") == "run_tasks":
                print(program["token"])
                sys.exit()
    time.sleep(0.2)
sys.exit("no runner was launched")
PYTHON
}

field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

# Data for the routes: a finished job, a running job and service, a waiting job, a block, a worker
# pool and an orchestrator that have not called yet.
seeded() {
  start_fleet && {
    "$HAYWARD" submit -q --count 3 --wait -- echo 'task {task}' &&
      "$HAYWARD" service submit -q --name echo -- sleep 1000 &&
      "$HAYWARD" submit -q --memory 64G -- true &&
      "$HAYWARD" submit -q -- sleep 1000 && runner_token >"$(token_file runner)" &&
      "$HAYWARD" block node-2 --because 'the fan is loud' --for 1h &&
      ordered rm-scheduler /v1/pools '{"job_id": "outside", "mode": "standalone"}' |
      field token >"$(token_file owner)" &&
      ordered job-converter /v1/orchestrators '{"name": "outside", "users": ["ada"]}' |
      field token >"$(token_file orchestrator)"
  } >"$scratch/seeded" 2>&1 || { cat "$scratch/seeded"; return 1; }
}

# No request waits for a missing revision, and long polls only with HAYWARD_WAIT.
waits() {
  local seconds=${HAYWARD_WAIT:-0}
  printf '\n[parameters]\n"query.wait" = %d\n"query.wait_ms" = %d\n"query.min_revision" = 0\n' \
    "$seconds" $((seconds * 1000))
}

how_many() {
  if [ -n "${HAYWARD_SEED:-}" ]; then
    echo --seed "$HAYWARD_SEED"
  else
    echo --generation-deterministic
  fi
  [ -z "${HAYWARD_SECONDS:-}" ] || echo --max-time "$HAYWARD_SECONDS"
}

# The routes of a service that a scope may use, or all.
routes_of() { # service scope
  [ -z "${HAYWARD_ALL:-}" ] && [ "$2" != all ] || return 0
  python3 - "$(address "$1")" "$2" <<'PYTHON'
import json, sys, urllib.request
url, wanted = sys.argv[1:]
document = json.load(urllib.request.urlopen(f"{url}/v1/openapi.json", timeout=20))
for path in document["paths"].values():
    for operation in path.values():
        scopes = {scope.split(":")[0] for scope in operation["x-hayward-scopes"]}
        if scopes & {wanted, "anyone", "known"}:
            print("--include-operation-id", operation["operationId"])
PYTHON
}

# One worker each: with more, the generator sometimes fails inside Python's own parser.
tried() { # service token scope
  local url here=$scratch/$1-$2
  url=$(address "$1")
  # shellcheck disable=SC2046
  mkdir "$here" && cd "$here" && cp "$checks" . && { cat "$settings"; waits; } >schemathesis.toml &&
    trier run "$url/v1/openapi.json" --url "$url" --checks all \
      --header "Authorization: Bearer $(cat "$(token_file "$2")")" \
      $(routes_of "$1" "$3") --max-examples "$examples" $(how_many) --workers 1 \
      --request-timeout 40 --continue-on-failure --no-color >log 2>&1
}

# All five at once, because they mostly wait for different services.
asked_by() { # token scope
  local service at failed=0 services=() pids=()
  for service in job-converter rm-scheduler container-manager node-status blocklist; do
    [ -z "$only_service" ] || [ "$only_service" = "$service" ] || continue
    (tried "$service" "$1" "$2") &
    services+=("$service") pids+=($!)
  done
  for at in "${!pids[@]}"; do
    local log=$scratch/${services[$at]}-$1/log
    if wait "${pids[$at]}"; then
      printf '%s: %s\n' "${services[$at]}" "$(grep -aE '^ +[0-9]+ generated' "$log")"
    else
      cat "$log"
      failed=1
    fi
  done
  return "$failed"
}

settings=$PWD/tests/schemathesis.toml checks=$PWD/tests/schemathesis_checks.py
step "a fleet" seeded
[ ${#failed_steps[@]} -eq 0 ] || { verdict; exit; }
# The callers that change most come last, because they end the data of the others.
for each in runner:runner:runner owner:owner:owner orchestrator:orchestrator:orchestrator \
  agent:agent-node-1:agent service:rm-scheduler:service user:user-ada:all operator:operator:all; do
  IFS=: read -r principal token scope <<<"$each"
  [ -z "$only_principal" ] || [ "$only_principal" = "$principal" ] || continue
  step "all routes, called by the $principal" asked_by "$token" "$scope"
done
verdict
