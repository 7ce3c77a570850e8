#!/usr/bin/env bash
# The telemetry of a fleet, read by a foreign collector: the test of traces, metrics and log lines
# runs with a public collector between the fleet and the test.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/steps.sh
. tests/fleet-for-strangers.sh

place=$target/ci-tools/rotel
python_package "$place" rotel 0.0.1a15 ||
  { skipped "the collector cannot be installed here"; verdict; exit; }
collector=$(realpath "$place")/rotel/rotel-agent
chmod +x "$collector" && "$collector" --version ||
  { skipped "the collector does not run here"; verdict; exit; }

# Built as part of the workspace: for one package alone, cargo builds it again with fewer features.
step "telemetry through $("$collector" --version)" env "HAYWARD_COLLECTOR=$collector" \
  cargo test --workspace --locked --test telemetry -- a_submission_is_followed
verdict
