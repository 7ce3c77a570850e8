#!/usr/bin/env bash
# The compose stack, from nothing to work that ran: brings it up under a project of its own on free
# ports, waits until every service is ready and every node healthy, submits one job through the
# command line in a container and one with curl from the host, reads what both printed, checks that
# no agent sees another's secrets, and takes everything down again with its volumes.
#
#   tests/compose.sh            HAYWARD_TEST_SECONDS bounds each wait (default 120)
set -euo pipefail
cd "$(dirname "$0")/.."

patience=${HAYWARD_TEST_SECONDS:-120}
project=hayward-test-$$
# Empty means any free port.
export HAYWARD_JOB_CONVERTER_PORT='' HAYWARD_RM_SCHEDULER_PORT='' HAYWARD_CONTAINER_MANAGER_PORT=''
export HAYWARD_NODE_STATUS_PORT='' HAYWARD_BLOCKLIST_PORT=''
scratch=$(mktemp -d)
stack() { docker-compose --ansi never -p "$project" "$@" </dev/null; }

leave() {
  local status=$?
  trap - EXIT INT TERM
  if [ $status -ne 0 ]; then
    echo "--- the stack when it failed"
    stack ps || true
    stack logs --no-color --tail 40 || true
  fi
  echo "taking the stack down"
  stack down --volumes --remove-orphans --timeout 10 >/dev/null 2>&1 || true
  rm -rf "$scratch"
  exit $status
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() { echo "FAILED: $*" >&2; exit 1; }

# Looks again and again until the command says yes, for a bounded time.
until_true() { # what command...
  local what=$1 begun=$SECONDS
  shift
  until "$@"; do
    [ $((SECONDS - begun)) -lt "$patience" ] || fail "$what: not within $patience s"
    sleep 0.5
  done
  echo "$what: after $((SECONDS - begun)) s"
}

url() { # service port
  echo "http://$(stack port "$1" "$2")"
}

ready() { curl -fsS -m 5 -o /dev/null "$1/readyz" 2>/dev/null; }

cli() { stack run --rm -T cli "$@"; }

# Tokens go to curl in a header file, so that they do not show among its arguments.
as() { # who, curl arguments...
  local who=$1
  shift
  curl -fsS -m 20 -H "@$scratch/$who" -H 'Content-Type: application/json' "$@"
}

# The value of the first field of that name in a JSON text on one line.
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }

echo "bringing up $project"
timeout 1800 docker-compose --ansi never -p "$project" up -d </dev/null >"$scratch/up.log" 2>&1 ||
  { tail -n 40 "$scratch/up.log"; fail "docker-compose up"; }

jobs=$(url job-converter 7400)
nodes=$(url node-status 7403)
for service in job-converter:7400 rm-scheduler:7401 container-manager:7402 node-status:7403 \
  blocklist:7404; do
  until_true "${service%:*} ready" ready "$(url "${service%:*}" "${service#*:}")"
done

umask 077
for who in operator user-ada; do
  token=$(cli cat "tokens/$who.token" | tr -d '\r\n')
  printf 'Authorization: Bearer %s' "$token" >"$scratch/$who"
done

healthy_nodes() {
  [ "$(as operator "$nodes/v1/nodes" | grep -o '"health":"healthy"' | wc -l)" -eq 3 ]
}
until_true "three nodes healthy" healthy_nodes

echo "refuses strangers"
status=$(curl -s -m 10 -o /dev/null -w '%{http_code}' "$jobs/v1/jobs")
[ "$status" = 401 ] || fail "a request without a token was answered $status"

finished() { # id
  case $(as user-ada "$jobs/v1/jobs/$1" | grep -oE '"state":"[a-z_]+"' | head -n 1) in
    *completed*) return 0 ;;
    *failed* | *cancelled* | *refused*) fail "job $1: $(as user-ada "$jobs/v1/jobs/$1")" ;;
    *) return 1 ;;
  esac
}

said() { # id words tasks
  local seen
  seen=$(as user-ada "$jobs/v1/jobs/$1/tasks" | grep -oE "$2[0-9]+-done" | sort -u | wc -l)
  [ "$seen" -eq "$3" ] || fail "job $1: $seen of $3 tasks said what they should"
  echo "job $1: all $3 tasks said what they should"
}

id=$(as user-ada -H 'Idempotency-Key: by-curl' "$jobs/v1/jobs" -d '{"name": "by-curl",
  "command": ["sh", "-c", "echo curl-{task}-done"], "tasks": {"count": 12}}' | field id)
[ -n "$id" ] || fail "no id for the job submitted with curl"
until_true "job by curl" finished "$id"
said "$id" curl- 12

id=$(HAYWARD_TOKEN_FILE=/keys/tokens/user-ada.token cli hayward submit --json --name by-cli \
  --count 12 -- sh -c 'echo cli-{task}-done' | tr -d '\n' | sed 's/": "/":"/g' | field id)
[ -n "$id" ] || fail "no id for the job submitted by the command line"
until_true "job by the command line" finished "$id"
said "$id" cli- 12

echo "an agent sees its own token and no key"
seen=$(stack exec -T node-1 find /keys -type f)
[ "$seen" = /keys/tokens/agent-node-1.token ] || fail "node-1 sees: $seen"

echo "a second \`up\` changes nothing"
stack up -d >/dev/null 2>&1 || fail "docker-compose up a second time"
until_true "job-converter ready again" ready "$(url job-converter 7400)"
finished "$id" || fail "the job is forgotten after a second \`up\`"
echo "the compose stack works"
