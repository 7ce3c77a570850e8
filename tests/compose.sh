#!/usr/bin/env bash
# Tests the compose stack: starts it under its own project on free ports, and waits until every
# service is ready and every node healthy. Submits one job through the command line in a container
# and one with curl from the host, and reads their output. Checks that no agent sees another's
# secrets, and that Prometheus has metrics of all processes over TLS. Saves the database and
# restores it, and removes everything with its volumes.
#
#   tests/compose.sh            HAYWARD_TEST_SECONDS bounds each wait (default 120)
set -euo pipefail
cd "$(dirname "$0")/.."

. tests/compose/common.sh
export COMPOSE_FILE=docker-compose.yml:tests/compose/collector.yml PROMETHEUS_VERSION=v2.53.3

# A program stands in for the collector, whose image comes from a registry. Prometheus, its
# settings, the networks and the certificates are those of the stack.
watched=no
if docker image inspect "prom/prometheus:$PROMETHEUS_VERSION" >/dev/null 2>&1; then
  watched=yes
  docker build -q -t hayward-test/collector:1 -f - tests/compose >/dev/null 2>&1 <<'DOCKERFILE' ||
FROM debian:trixie-slim
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/*
COPY collector.py /collector.py
USER 10001:10001
ENTRYPOINT ["python3", "/collector.py"]
DOCKERFILE
    fail "the image of the stand-in for the collector"
fi

bring_up
if [ $watched = yes ]; then
  stack --profile observability up -d --no-deps otel-collector prometheus >/dev/null 2>&1 ||
    fail "the observers"
fi

echo "requests without a token are refused"
status=$(curl -s -m 10 --cacert "$scratch/ca.pem" -o /dev/null -w '%{http_code}' "$jobs/v1/jobs") ||
  true
[ "$status" = 401 ] || fail "a request without a token was answered $status"
! curl -s -m 10 -o /dev/null "$jobs/livez" || fail "trusted without its authority"
! curl -s -m 10 -o /dev/null "http${jobs#https}/livez" || fail "plain HTTP was answered"

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
  [ "$seen" -eq "$3" ] || fail "job $1: $seen of $3 tasks printed the right output"
  echo "job $1: all $3 tasks printed the right output"
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
[ "$(echo $seen | tr ' ' '\n' | sort | tr '\n' ' ')" = \
  "/keys/tls/ca.pem /keys/tokens/agent-node-1.token " ] || fail "node-1 sees: $seen"

# Metrics that were sent over TLS, read as the boards read them.
heard_of() { # expression count
  curl -fsS -m 5 -G --data-urlencode "query=$1" "http://$prometheus/api/v1/query" |
    grep -q "\"$2\"\]"
}
if [ $watched = yes ]; then
  begin_lasting "${jobs#https://}"
  prometheus=$(docker port "$(stack --profile observability ps -q prometheus)" 9090/tcp | head -n 1)
  until_true "Prometheus asks the collector" heard_of 'up{job="hayward"}' 1
  # The last process may report for the first time after ten seconds.
  told='count by (job, instance) ({service_name=~"hayward-.+", service_version!=""})'
  all_tell() { heard_of "count($told)" 8; }
  begun=$SECONDS
  until all_tell; do
    if [ $((SECONDS - begun)) -ge "$patience" ]; then
      curl -sS -m 5 -G --data-urlencode "query=$told" "http://$prometheus/api/v1/query" || true
      curl -sS -m 5 "http://$prometheus/api/v1/targets?state=active" || true
      fail "the collector does not have metrics of all five services and three agents"
    fi
    sleep 1
  done
  echo "the collector has metrics of five services and three agents"
  boards() { python3 tests/compose/boards.py "$prometheus" >"$scratch/boards" 2>&1; }
  begun=$SECONDS
  until boards; do
    [ $((SECONDS - begun)) -lt "$patience" ] || { cat "$scratch/boards"; fail "boards are empty"; }
    sleep 1
  done
  grep . "$scratch/boards"
  end_lasting "${jobs#https://}"
else
  echo "SKIPPED: metrics in Prometheus; no image of it (docker/base-images.sh prometheus)"
fi

echo "a backup of the database over TLS, and a restore"
keeper() { stack run --rm -T keeper hayward "$@"; }
keeper backup /backups/one >"$scratch/said" 2>&1 || { cat "$scratch/said"; fail "backup"; }
grep -E 'of rows' "$scratch/said"
keeper preflight --backups /backups >"$scratch/said" 2>&1 ||
  { cat "$scratch/said"; fail "preflight"; }
grep '^yes:' "$scratch/said"
HAYWARD_TOKEN_FILE=/keys/tokens/user-ada.token cli hayward submit --count 1 -- true \
  >/dev/null 2>&1
! keeper restore /backups/one >"$scratch/said" 2>&1 || fail "restored while services write"
grep -o 'nothing was changed.*' "$scratch/said"
stack stop -t 20 job-converter rm-scheduler container-manager node-status blocklist renew \
  >/dev/null 2>&1
# A lease that was not given back ends within 5 s.
restored() { keeper restore /backups/one >"$scratch/said" 2>&1; }
until_true "restored" restored
stack up -d >/dev/null 2>&1 || fail "docker-compose up after the restore"
for service in "${services[@]}"; do
  until_true "${service%:*} ready again" ready "$(url "${service%:*}" "${service#*:}")"
done
jobs=$(url job-converter 7400)
seen=$(as user-ada "$jobs/v1/jobs" | grep -o '"id":"job_' | wc -l)
[ "$seen" -eq 2 ] || fail "after the restore there are $seen jobs, and 2 were saved"
echo "saved work is there, and later work is not"

echo "a second \`up\` changes nothing"
stack up -d >/dev/null 2>&1 || fail "docker-compose up a second time"
until_true "job-converter ready again" ready "$(url job-converter 7400)"
finished "$id" || fail "the job is gone after a second \`up\`"
echo "the compose stack works"
