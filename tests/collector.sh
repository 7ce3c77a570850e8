#!/usr/bin/env bash
# What a fleet tells, read by a collector that is not ours: the test of traces, metrics and lines
# runs with a public collector between the fleet and itself, so what it asserts has been taken in
# and written again by somebody else's program.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/steps.sh
. tests/fleet-for-strangers.sh

place=$target/ci-tools/rotel
python_package "$place" rotel 0.0.1a15 ||
  { skipped "the collector cannot be installed here"; verdict; exit; }
collector=$(realpath "$place")/rotel/rotel-agent
chmod +x "$collector" && "$collector" --version ||
  { skipped "the collector does not run on this machine"; verdict; exit; }

# Of the workspace, as `cargo test` built it: of one package alone, cargo builds it once more with
# fewer features.
step "telemetry through $("$collector" --version)" env "HAYWARD_COLLECTOR=$collector" \
  cargo test --workspace --locked --test telemetry -- a_submission_is_followed
verdict
