#!/usr/bin/env bash
# Tests the compose stack with failures. While a client submits jobs, certificates are renewed, each
# service is replaced and killed, Postgres is restarted, and leaders are killed so that replicas
# take over. Prints how long each took, and fails when a submission fails or a job is lost. Checks
# the limits of containers, the encryption of the database and the rights of its roles. Prometheus
# scrapes the services meanwhile, and in the end answers the questions of the boards.
#
#   tests/stack.sh              HAYWARD_TEST_SECONDS bounds each wait (default 120),
#                               HAYWARD_TEST_GOAL the goals of G2 and G3 (default 10 s)
set -euo pipefail
cd "$(dirname "$0")/.."

. tests/compose/common.sh
# No collector: its image comes from a registry.
export COMPOSE_FILE=docker-compose.yml:docker/observability/scrape.yml

goal=${HAYWARD_TEST_GOAL:-10}
submitter=
# On SIGTERM it would wait for its jobs.
leave_more() { [ -z "$submitter" ] || kill -9 "$submitter" 2>/dev/null || true; }

now() { date +%s.%3N; }
took() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }
# Reported, and no failure: a slow host proves nothing.
within_goal() { # what begun
  local seconds
  seconds=$(took "$2")
  if awk -v s="$seconds" -v g="$goal" 'BEGIN { exit !(s <= g) }'; then
    echo "$1: after $seconds s, within the goal of $goal s"
  else
    echo "$1: after $seconds s, GOAL MISSED: $goal s"
  fi
}

part() { echo "--- $* (at $SECONDS s)"; }

containers() { stack ps -q "$1"; }
port_of() { docker port "$1" "$2/tcp" | head -n 1; }
leads() { ask -m 2 -o /dev/null "https://$1/readyz" 2>/dev/null; }
alive() { ask -m 2 -o /dev/null "https://$1/livez" 2>/dev/null; }

# The addresses of job-converter for the submitter, replaced atomically because it may read at any
# time.
tell_submitter() {
  local id
  for id in $(containers job-converter); do port_of "$id" 7400; done >"$scratch/addresses.new"
  mv "$scratch/addresses.new" "$scratch/addresses"
}

# The number of replicas stays the same, whatever is replaced.
replicas=()
bring() { stack up -d --no-deps "${replicas[@]}" "$@" >/dev/null 2>&1 || fail "up $*"; }

somebody_leads() {
  while read -r leading; do leads "$leading" && return 0; done <"$scratch/addresses"
  return 1
}

# A job that is submitted now ends, so all services work. It belongs to another user, so that on a
# slow host it does not wait behind all jobs of ada.
works() { # what begun
  local id='' leading
  submitted() {
    somebody_leads && id=$(as user-ben -H "Idempotency-Key: works-$2" "https://$leading/v1/jobs" \
      -d '{"command": ["true"], "tasks": {"count": 3}, "max_attempts": 10}' 2>/dev/null | field id)
  }
  completed() {
    somebody_leads && as user-ben 2>/dev/null "https://$leading/v1/jobs/$id?wait=5&until=final" |
      grep -q '"state":"completed"'
  }
  until_true "$1: submitted" submitted "$1" "$2" >/dev/null
  until_true "$1: completed" completed >/dev/null
  echo "$1, work continues: after $(took "$2") s"
}

# Prometheus, under its official name and version; the other images are not available here.
prometheus=
observed() {
  export PROMETHEUS_VERSION=v2.53.3
  if ! docker image inspect prom/prometheus:$PROMETHEUS_VERSION >/dev/null 2>&1; then
    echo "SKIPPED: no image of Prometheus (docker/base-images.sh prometheus)"
    return 0
  fi
  stack --profile observability up -d --no-deps prometheus >/dev/null 2>&1 || fail "prometheus"
  prometheus=$(port_of "$(stack --profile observability ps -q prometheus)" 9090)
}

judged() { # how many rules
  local good
  good=$(curl -fsS -m 5 "http://$prometheus/api/v1/rules" | grep -o '"health":"ok"' | wc -l)
  [ "$good" -eq "$1" ]
}

# The number of replicas that Prometheus scraped with its own token.
asked_of() {
  curl -fsS -m 5 -G --data-urlencode 'query=count(up{job="hayward"} == 1)' \
    "http://$prometheus/api/v1/query" | grep -q "\"$1\"\]"
}

# The answers to the expressions of boards and alerts.
shown() {
  [ -n "$prometheus" ] || return 0
  part "what the boards show"
  local wanted
  wanted=$(grep -cE '^ +- (alert|record):' docker/observability/alerts.yml)
  somebody_leads || fail "no job-converter leads"
  begin_lasting "$leading"
  until_true "Prometheus evaluates all $wanted rules" judged "$wanted"
  until_true "Prometheus is answered by all 8 replicas" asked_of 8
  answers() { python3 tests/compose/boards.py "$prometheus" >"$scratch/boards" 2>&1; }
  local begun=$SECONDS
  until answers; do
    [ $((SECONDS - begun)) -lt "$patience" ] || { cat "$scratch/boards"; fail "boards are empty"; }
    sleep 1
  done
  grep . "$scratch/boards"
  end_lasting "$leading"
  # The second port also requires a token (S1).
  local said
  said=$(docker exec "$(containers node-1)" \
    hayward healthcheck --keys /keys https://rm-scheduler:9464/metrics 2>&1) || true
  case $said in
    *"answered 401"*) echo "without a token metrics are refused" ;;
    *) fail "a request for metrics without a token: $said" ;;
  esac
}

confined() {
  part "what confines the containers"
  local id name is
  for id in $(stack --profile observability ps -q); do
    name=$(docker inspect -f '{{.Name}}' "$id")
    [ "$(docker inspect -f '{{.State.Running}}' "$id")" = true ] || continue
    is=$(docker inspect -f '{{with .HostConfig}}{{.ReadonlyRootfs}} {{.CapDrop}} {{.CapAdd}}
      {{.SecurityOpt}} {{.RestartPolicy.Name}}{{end}}' "$id" | tr -s ' \n' ' ')
    [ "$is" = "true [ALL] [] [no-new-privileges:true] unless-stopped " ] ||
      fail "$name is not confined: $is"
    for is in Memory NanoCpus PidsLimit; do
      [ "$(docker inspect -f "{{.HostConfig.$is}}" "$id")" -gt 0 ] || fail "$name: no $is"
    done
    [ "$(docker exec "$id" id -u)" -ge 999 ] || fail "$name runs as root"
    ! docker inspect -f '{{json .Config.Env}}' "$id" | grep -Ei 'postgres://|eyJ|password=' ||
      fail "$name has a secret in its environment"
    ! docker exec "$id" touch /etc/changed 2>/dev/null || fail "$name may change its image"
  done
  local service own
  for service in "${services[@]}"; do
    id=$(containers "${service%:*}")
    # Except this command and, sometimes, the health check, which may end meanwhile.
    is=$(docker exec "$id" sh -c 'cat /proc/[0-9]*/comm 2>/dev/null; :' |
      grep -vxE 'sh|cat|hayward' | sort -u | tr '\n' ' ')
    case $is in
      "docker-init hayward-"[a-z-]*" " | "tini hayward-"[a-z-]*" ") ;;
      *) fail "${service%:*} runs: $is" ;;
    esac
    # The public key and the authority, its own token, address and certificate; the signing key for
    # services that sign.
    is=$(docker exec "$id" sh -c 'cd /keys && find . -type f ! -name issuer.pem' | sort)
    own=$(printf './%s\n' issuer.pub.pem "database/$(echo "${service%:*}" | tr - _).url" \
      tls/ca.pem "tls/${service%:*}.key" "tls/${service%:*}.pem" \
      "tokens/${service%:*}.token" | sort)
    [ "$is" = "$own" ] || fail "${service%:*} sees $is"
  done
  # Insecure modes are refused (S3).
  is=$(stack run --rm -T -e HAYWARD_ALLOW_INSECURE=true blocklist 2>&1) || true
  case $is in
    *"is refused in released images"*) ;;
    *) fail "an insecure mode was not refused: $is" ;;
  esac
  echo "every container is unprivileged, read-only and limited; a service sees its own secrets"
}

# Each service's role tries to use what belongs to another (S25).
crossing() {
  part "roles of the database"
  local service role other address said postgres refused
  postgres=$(containers postgres)
  for service in "${services[@]}"; do
    role=$(echo "${service%:*}" | tr - _)
    other=blocklist
    [ "$role" != blocklist ] || other=rm_scheduler
    address=$(docker exec "$(containers "${service%:*}")" cat "/keys/database/$role.url")
    # The following parameter is for the services' driver; psql uses TLS by itself.
    address=${address%%\?*}
    cat >"$scratch/crossing" <<SQL
select * from $other.writer;
update $other.writer set epoch = epoch + 1;
delete from $other.writer;
drop table $role.writer;
create table $role.mine (a int);
create table public.mine (a int);
create schema mine;
create role mine;
set role $other;
set role ${other}_owner;
set role ${role}_owner;
set role postgres;
alter role $role superuser;
copy $role.writer to program 'true';
select 'may read its own: ' || count(*) from $role.writer;
SQL
    # The address in the environment, because arguments can be read.
    said=$(ADDRESS=$address docker exec -i -e ADDRESS "$postgres" \
      sh -c 'psql -XtA -v VERBOSITY=verbose "$ADDRESS" 2>&1' <"$scratch/crossing")
    # Insufficient privilege, or no such role.
    refused=$(echo "$said" | grep -cE 'ERROR: +(42501|42704):') || true
    [ "$refused" -eq 14 ] || fail "$role: of 14 statements $refused were refused: $said"
    case $said in *"may read its own: 1"*) ;; *) fail "$role: $said" ;; esac
  done
  echo "no service's role reads or changes another's data, makes tables or takes another role"
}

# Every session of a service is encrypted. Connections without TLS or with another authority fail
# (S25).
sessions_encrypted() {
  docker exec "$(containers postgres)" psql -XtA -U postgres -d hayward -c "
    select application_name, bool_and(ssl) and min(version) >= 'TLSv1.2'
      from pg_stat_ssl join pg_stat_activity using (pid)
     where client_addr is not null and application_name like 'hayward %' group by 1 order by 1" |
    tr '\n' ' '
}

encrypted() {
  part "TLS to the database"
  local said wanted='' service
  for service in blocklist container_manager job_converter node_status rm_scheduler; do
    wanted+="hayward $service|t "
  done
  all_encrypted() { [ "$(sessions_encrypted)" = "$wanted" ]; }
  until_true "sessions of all five services, and all encrypted" all_encrypted
  # Connects over the server's network, with the right password.
  said=$(docker exec "$(containers blocklist)" cat /keys/database/blocklist.url)
  said=$(ADDRESS="${said%%\?*}?sslmode=disable" docker exec -i -e ADDRESS "$(containers postgres)" \
    sh -c 'psql -XtA -c "select 1" "$ADDRESS" 2>&1') || true
  case $said in
    *"no pg_hba.conf entry"*"no encryption"*) ;;
    *) fail "a connection without TLS was not refused: $said" ;;
  esac
  # A service with another authority, with another name for the server, and without TLS.
  said=$(stack run --rm -T --no-deps blocklist sh -c '
    hayward prepare --keys /tmp/other >/dev/null
    ip=$(getent hosts postgres | cut -d " " -f 1)
    for change in s#%2Fkeys%2F#/tmp/other/# s#@postgres:#@$ip:# s#verify-full#require#; do
      sed "$change" /keys/database/blocklist.url >/tmp/url
      HAYWARD_DATABASE_URL_FILE=/tmp/url timeout 20 hayward-blocklist 2>&1
    done' 2>&1) || true
  local words
  for words in "is not signed by an authority in /tmp/other/tls/ca.pem" \
    "its certificate is for postgres" "its address says .require.: add"; do
    echo "$said" | grep -q "$words" || fail "not told: $words; but: $said"
  done
  case $said in *listening*) fail "a service started without a trusted database: $said" ;; esac
  echo "without TLS, with another authority or another name connections fail with a reason"
}

# The certificate of the database, read as its clients do.
certificate_of_database() {
  python3 -c 'import socket, ssl, sys
plain = socket.create_connection((sys.argv[1], 5432), 5)
plain.sendall(bytes([0, 0, 0, 8, 4, 210, 22, 47]))
assert plain.recv(1) == b"S"
context = ssl._create_unverified_context()
with context.wrap_socket(plain) as made:
    print(ssl.DER_cert_to_PEM_cert(made.getpeercert(True)))' \
    "$(docker inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' \
      "$(containers postgres)")"
}

# The certificate of a service.
certificate() { # service port
  python3 -c 'import ssl, sys
host, port = sys.argv[1].rsplit(":", 1)
print(ssl.get_server_certificate((host, int(port))))' "$(port_of "$(containers "$1")" "$2")"
}

# As `renew` does every two hours. Nothing restarts, and no request of the submitter fails.
renew_certificates() {
  part "renewing certificates"
  local service begun ids
  ids=$(stack ps -q | sort)
  for service in "${services[@]}"; do
    certificate "${service%:*}" "${service#*:}" >"$scratch/${service%:*}.pem"
  done
  certificate_of_database >"$scratch/postgres.pem"
  begun=$(now)
  stack run --rm -T prepare >/dev/null 2>&1 || fail "prepare again"
  shows_another() {
    [ "$(certificate "$1" "$2")" != "$(cat "$scratch/$1.pem")" ] && ready "$(url "$1" "$2")"
  }
  for service in "${services[@]}"; do
    until_true "${service%:*} shows another" shows_another "${service%:*}" "${service#*:}" \
      >/dev/null
  done
  database_shows_another() {
    [ "$(certificate_of_database)" != "$(cat "$scratch/postgres.pem")" ]
  }
  until_true "the database shows another" database_shows_another >/dev/null
  [ "$(stack ps -q | sort)" = "$ids" ] || fail "containers were replaced"
  echo "all five services and the database have new certificates: after $(took "$begun") s"
}

roll() {
  part "rolling"
  local service begun old
  for service in "${services[@]}"; do
    [ "$service" != job-converter:7400 ] || continue
    begun=$(now)
    old=$(containers "${service%:*}")
    bring --force-recreate "${service%:*}"
    [ "$(containers "${service%:*}")" != "$old" ] || fail "${service%:*} was not replaced"
    until_true "${service%:*} replaced and ready, it" leads \
      "$(port_of "$(containers "${service%:*}")" "${service#*:}")" >/dev/null
    echo "${service%:*} replaced: ready after $(took "$begun") s"
  done
  # The service of the submissions: first a second replica, then the older ones are replaced one by
  # one.
  replicas=(--scale job-converter=2)
  begun=$(now)
  old=$(containers job-converter)
  bring --no-recreate job-converter
  tell_submitter
  for old in $(containers job-converter); do
    until_true "both alive" alive "$(port_of "$old" 7400)" >/dev/null
  done
  for old in $(containers job-converter); do
    docker stop -t 20 "$old" >/dev/null
    docker rm "$old" >/dev/null
    tell_submitter
    until_true "the other one leads" somebody_leads >/dev/null
    bring --no-recreate job-converter
    tell_submitter
    for id in $(containers job-converter); do
      until_true "both alive" alive "$(port_of "$id" 7400)" >/dev/null
    done
  done
  echo "job-converter replaced, both replicas: after $(took "$begun") s"
  works "after rolling" "$(now)"
}

# Kills from inside, like a crash: after `docker kill` nothing starts the container again. Kills the
# oldest process of that name: in an agent's container supervisors and runners are younger.
crash() { # container comm
  docker exec "$1" sh -c 'for pid in $(cd /proc && echo [0-9]* | tr " " "\n" | sort -n); do
    case $(cat "/proc/$pid/comm" 2>/dev/null) in "$1"*) kill -9 "$pid"; exit ;; esac
  done; exit 1' - "$2" || fail "$2 was not killed"
}

restarted() { # container count
  [ "$(docker inspect -f '{{.RestartCount}} {{.State.Running}}' "$1")" = "$2 true" ]
}

# A restart gives the killed replica another port, and it may lead again.
one_of_them_leads() {
  tell_submitter 2>/dev/null
  somebody_leads
}

kill_each() {
  part "killing"
  local service begun id
  for service in rm-scheduler:7401 container-manager:7402 node-status:7403 blocklist:7404; do
    id=$(containers "${service%:*}")
    begun=$(now)
    # The kernel cuts names at 15 characters.
    crash "$id" "$(printf 'hayward-%s' "${service%:*}" | cut -c 1-15)"
    until_true "${service%:*} restarted" restarted "$id" 1 >/dev/null
    until_true "${service%:*} ready" leads "$(port_of "$id" "${service#*:}")" >/dev/null
    echo "${service%:*} killed, restarted by its policy and ready: after $(took "$begun") s"
  done
  # Both replicas for submissions in turn: one of them leads, whichever was killed.
  for id in $(containers job-converter); do
    begun=$(now)
    crash "$id" hayward-job-con
    until_true "job-converter led by one of them" one_of_them_leads >/dev/null
    within_goal "job-converter killed, one of them leads (G2)" "$begun"
    until_true "job-converter restarted" restarted "$id" 1 >/dev/null
    tell_submitter
    until_true "job-converter is back" alive "$(port_of "$id" 7400)" >/dev/null
  done
  begun=$(now)
  id=$(containers node-1)
  crash "$id" hayward-node-ag
  until_true "node-1 restarted" restarted "$id" 1 >/dev/null
  works "node-1 killed" "$begun"
  works "all killed once" "$(now)"
}

restart_postgres() {
  part "restarting Postgres"
  local begun accepting id
  id=$(containers postgres)
  begun=$(now)
  docker restart -t 60 "$id" >/dev/null
  until docker exec "$id" pg_isready -q -h 127.0.0.1 -U postgres; do
    awk -v s="$(took "$begun")" -v p="$patience" 'BEGIN { exit !(s < p) }' || fail "Postgres"
  done
  accepting=$(now)
  echo "Postgres accepts connections: after $(took "$begun") s"
  written() {
    awk -v t="$accepting" '$2 >= t && $4 != "failed" { found = 1 } END { exit !found }' \
      "$scratch/log"
  }
  until_true "the first write" written >/dev/null
  within_goal "first successful write since it accepts connections (G3)" "$accepting"
  works "Postgres restarted" "$(now)"
}

take_over() { # service port
  part "two replicas of $1"
  local begun id leader='' other=''
  replicas+=(--scale "$1=2")
  bring --no-recreate "$1"
  for id in $(containers "$1"); do
    until_true "alive" alive "$(port_of "$id" "$2")" >/dev/null
    if leads "$(port_of "$id" "$2")"; then leader+=$id; else other+=$id; fi
  done
  if [ ${#leader} -ne ${#other} ] || [ -z "$leader" ]; then fail "$1: no leader and standby"; fi
  echo "$1: one leads, the other is on standby"
  begun=$(now)
  docker kill "$leader" >/dev/null
  until leads "$(port_of "$other" "$2")"; do
    awk -v s="$(took "$begun")" -v p="$patience" 'BEGIN { exit !(s < p) }' || fail "no takeover"
  done
  within_goal "$1: leader killed, the other leads (G2)" "$begun"
  works "$1: leader killed" "$begun"
  docker start "$leader" >/dev/null
  until_true "the killed one is back" alive "$(port_of "$leader" "$2")" >/dev/null
  ! leads "$(port_of "$leader" "$2")" || fail "$1: two lead"
  leads "$(port_of "$other" "$2")" || fail "$1: the other does not lead any more"
  echo "$1: the killed one is back on standby"
}

bring_up
observed
confined
encrypted
crossing
tell_submitter
python3 tests/compose/submit.py "$scratch/user-ada" "$scratch/addresses" "$scratch/ca.pem" \
  "$scratch/log" >"$scratch/summary" &
submitter=$!
renew_certificates
roll
kill_each
restart_postgres
take_over rm-scheduler 7401
take_over container-manager 7402
shown
nodes=$(url node-status 7403) # a restart gave it another port
until_true "three nodes healthy" healthy_nodes
kill "$submitter"
status=0
wait "$submitter" || status=$?
submitter=
cat "$scratch/summary"
[ "$status" -eq 0 ] || fail "submissions failed, or acknowledged jobs are lost"
echo "all parts passed in $SECONDS s"
