# Sourced by the tests of the compose stack: a stack under its own project on free ports, removed
# with its volumes at the end of the test.
# shellcheck shell=bash
#
# HAYWARD_TEST_SECONDS bounds each wait (default 120).

patience=${HAYWARD_TEST_SECONDS:-120}
project=hayward-test-$$
services=(job-converter:7400 rm-scheduler:7401 container-manager:7402 node-status:7403
  blocklist:7404)
# Empty means any free port.
export HAYWARD_JOB_CONVERTER_PORT='' HAYWARD_RM_SCHEDULER_PORT='' HAYWARD_CONTAINER_MANAGER_PORT=''
export HAYWARD_NODE_STATUS_PORT='' HAYWARD_BLOCKLIST_PORT=''
export PROMETHEUS_PORT='' GRAFANA_PORT='' JAEGER_PORT=''
scratch=$(mktemp -d)
stack() { docker-compose --ansi never -p "$project" "$@" </dev/null; }

# Tests redefine this to end more processes.
leave_more() { :; }

leave() {
  local status=$?
  trap - EXIT INT TERM
  leave_more
  if [ $status -ne 0 ]; then
    echo "--- the stack when it failed"
    stack ps || true
    stack logs --no-color --tail 40 || true
  fi
  echo "taking the stack down"
  stack --profile observability down --volumes --remove-orphans --timeout 10 >/dev/null 2>&1 ||
    true
  rm -rf "$scratch"
  exit $status
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() { echo "FAILED: $*" >&2; exit 1; }

# Only the stack's own authority is trusted.
ask() { curl -fsS --cacert "$scratch/ca.pem" "$@"; }

# Repeats the command until it succeeds, for a bounded time.
until_true() { # what command...
  local what=$1 begun=$SECONDS
  shift
  until "$@"; do
    [ $((SECONDS - begun)) -lt "$patience" ] || fail "$what: not within $patience s"
    sleep 0.2
  done
  echo "$what: after $((SECONDS - begun)) s"
}

url() { # service port
  echo "https://$(stack port "$1" "$2")"
}

ready() { ask -m 5 -o /dev/null "$1/readyz" 2>/dev/null; }

cli() { stack run --rm -T cli "$@"; }

# Tokens go to curl in a header file, so that they do not show among its arguments.
as() { # who, curl arguments...
  local who=$1
  shift
  ask -m 20 -H "@$scratch/$who" -H 'Content-Type: application/json' "$@"
}

# The value of the first field of that name in a JSON text on one line.
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }

# Work that runs for the whole test: boards of shares need running work, and a short job is over too
# soon.
lasting=
begin_lasting() { # job-converter
  lasting=$(as user-ben -H 'Idempotency-Key: lasting' "https://$1/v1/jobs" \
    -d '{"command": ["sleep", "900"], "tasks": {"count": 1}}' | field id)
  [ -n "$lasting" ] || fail "no id for the job that lasts"
}
end_lasting() { # job-converter
  as user-ben -X DELETE "https://$1/v1/jobs/$lasting" >/dev/null || fail "the job that lasts"
}

healthy_nodes() {
  [ "$(as operator "$nodes/v1/nodes" | grep -o '"health":"healthy"' | wc -l)" -eq 3 ]
}

# Waits until every service is ready and every node healthy. Sets `jobs`, `nodes` and, for `as`, the
# tokens of an operator and two users.
bring_up() {
  echo "bringing up $project"
  timeout 1800 docker-compose --ansi never -p "$project" up -d </dev/null >"$scratch/up.log" 2>&1 ||
    { tail -n 40 "$scratch/up.log"; fail "docker-compose up"; }
  cli cat tls/ca.pem >"$scratch/ca.pem"
  jobs=$(url job-converter 7400)
  nodes=$(url node-status 7403)
  local service who token
  for service in "${services[@]}"; do
    until_true "${service%:*} ready" ready "$(url "${service%:*}" "${service#*:}")"
  done
  umask 077
  for who in operator user-ada user-ben; do
    token=$(cli cat "tokens/$who.token" | tr -d '\r\n')
    printf 'Authorization: Bearer %s' "$token" >"$scratch/$who"
  done
  until_true "three nodes healthy" healthy_nodes
}
