#!/usr/bin/env bash
# The compose stack, from nothing to work that ran: brings it up under a project of its own on free
# ports, waits until every service is ready and every node healthy, submits one job through the
# command line in a container and one with curl from the host, reads what both printed, checks that
# no agent sees another's secrets, asks Prometheus what it heard of all of them over TLS, saves the
# database and puts it back, and takes everything down again with its volumes.
#
#   tests/compose.sh            HAYWARD_TEST_SECONDS bounds each wait (default 120)
set -euo pipefail
cd "$(dirname "$0")/.."

. tests/compose/common.sh
export COMPOSE_FILE=docker-compose.yml:tests/compose/collector.yml PROMETHEUS_VERSION=v2.53.3

# Something takes the place of the collector, whose image comes from a registry; Prometheus, its
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
    fail "the image of what stands for the collector"
fi

bring_up
if [ $watched = yes ]; then
  stack --profile observability up -d --no-deps otel-collector prometheus >/dev/null 2>&1 ||
    fail "the observers"
fi

echo "refuses strangers"
status=$(curl -s -m 10 --cacert "$scratch/ca.pem" -o /dev/null -w '%{http_code}' "$jobs/v1/jobs") ||
  true
[ "$status" = 401 ] || fail "a request without a token was answered $status"
! curl -s -m 10 -o /dev/null "$jobs/livez" || fail "its authority is the machine's"
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
[ "$(echo $seen | tr ' ' '\n' | sort | tr '\n' ' ')" = \
  "/keys/tls/ca.pem /keys/tokens/agent-node-1.token " ] || fail "node-1 sees: $seen"

# What was told over TLS, taken up where the boards look for it.
heard_of() { # expression count
  curl -fsS -m 5 -G --data-urlencode "query=$1" "http://$prometheus/api/v1/query" |
    grep -q "\"$2\"\]"
}
if [ $watched = yes ]; then
  begin_lasting "${jobs#https://}"
  prometheus=$(docker port "$(stack --profile observability ps -q prometheus)" 9090/tcp | head -n 1)
  until_true "Prometheus asks the collector" heard_of 'up{job="hayward"}' 1
  # The last of them may tell of itself for the first time after ten seconds.
  told='count by (job, instance) ({service_name=~"hayward-.+", service_version!=""})'
  all_tell() { heard_of "count($told)" 8; }
  begun=$SECONDS
  until all_tell; do
    if [ $((SECONDS - begun)) -ge "$patience" ]; then
      curl -sS -m 5 -G --data-urlencode "query=$told" "http://$prometheus/api/v1/query" || true
      curl -sS -m 5 "http://$prometheus/api/v1/targets?state=active" || true
      fail "not all five services and three agents are heard of by way of the collector"
    fi
    sleep 1
  done
  echo "five services and three agents are heard of by way of the collector"
  boards() { python3 tests/compose/boards.py "$prometheus" >"$scratch/boards" 2>&1; }
  begun=$SECONDS
  until boards; do
    [ $((SECONDS - begun)) -lt "$patience" ] || { cat "$scratch/boards"; fail "boards are empty"; }
    sleep 1
  done
  grep . "$scratch/boards"
  end_lasting "${jobs#https://}"
else
  echo "SKIPPED: what Prometheus hears; no image of it (docker/base-images.sh prometheus)"
fi

echo "a backup of the database, over TLS, and back"
keeper() { stack run --rm -T keeper hayward "$@"; }
keeper backup /backups/one >"$scratch/said" 2>&1 || { cat "$scratch/said"; fail "backup"; }
grep -E 'of rows' "$scratch/said"
keeper preflight --backups /backups >"$scratch/said" 2>&1 ||
  { cat "$scratch/said"; fail "preflight"; }
grep '^yes:' "$scratch/said"
HAYWARD_TOKEN_FILE=/keys/tokens/user-ada.token cli hayward submit --count 1 -- true \
  >/dev/null 2>&1
! keeper restore /backups/one >"$scratch/said" 2>&1 || fail "restored beside services that write"
grep -o 'nothing was changed.*' "$scratch/said"
stack stop -t 20 job-converter rm-scheduler container-manager node-status blocklist renew \
  >/dev/null 2>&1
# A lease that was not given back runs out within 5 s.
restored() { keeper restore /backups/one >"$scratch/said" 2>&1; }
until_true "restored" restored
stack up -d >/dev/null 2>&1 || fail "docker-compose up after the restore"
for service in "${services[@]}"; do
  until_true "${service%:*} ready again" ready "$(url "${service%:*}" "${service#*:}")"
done
jobs=$(url job-converter 7400)
seen=$(as user-ada "$jobs/v1/jobs" | grep -o '"id":"job_' | wc -l)
[ "$seen" -eq 2 ] || fail "after the restore there are $seen jobs, and 2 were saved"
echo "what was saved is there, and what came after is not"

echo "a second \`up\` changes nothing"
stack up -d >/dev/null 2>&1 || fail "docker-compose up a second time"
until_true "job-converter ready again" ready "$(url job-converter 7400)"
finished "$id" || fail "the job is forgotten after a second \`up\`"
echo "the compose stack works"
