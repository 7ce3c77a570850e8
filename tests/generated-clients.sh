#!/usr/bin/env bash
# The tour of the API (docs/api-tour.md) with foreign clients: a public generator makes a client
# from each of the five descriptions, without a warning. `tests/generated_tour.py` then uses a
# running fleet with those clients alone.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/steps.sh
. tests/fleet-for-strangers.sh

place=$target/ci-tools/openapi-python-client
python_package "$place" openapi-python-client 0.29.1 ||
  { skipped "openapi-python-client cannot be installed here"; exit 0; }
place=$(realpath "$place")

generated() { # description
  local name client log=$scratch/generated
  name=$(basename "$1" .json)
  client=hayward_${name//-/_}_client
  PYTHONPATH=$place PATH=$place/bin:$PATH timeout 60 python3 -m openapi_python_client generate \
    --path "$1" --meta none --output-path "$scratch/clients/$client" --fail-on-warning \
    >"$log" 2>&1 && return 0
  cat "$log"
  return 1
}

toured() {
  local services=() service
  for service in job-converter rm-scheduler container-manager node-status blocklist; do
    services+=("$service=$(address "$service")")
  done
  PYTHONPATH=$scratch/clients:$place timeout 90 python3 tests/generated_tour.py \
    --operator "$(token_file operator)" --user "$(token_file user-ada)" "${services[@]}"
}

mkdir "$scratch/clients"
for description in openapi/*.json; do
  step "a client from $description" generated "$description"
done
step "a fleet" start_fleet
step "the tour" toured
verdict
