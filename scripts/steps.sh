# Sourced by scripts that run steps one after the other: headers, timings, one summary.
# shellcheck shell=bash

failed_steps=()
failure_notes=()
skipped_steps=()
current_step=

# A full disk makes unrelated steps fail.
free_disk() { df -h --output=avail . | tail -n 1 | tr -d ' '; }

step() { # title command...
  current_step=$1; shift
  local begun=$SECONDS
  printf '\n=== %s (%s of disk free)\n' "$current_step" "$(free_disk)"
  if "$@"; then
    printf -- '--- %s: done in %d s\n' "$current_step" $((SECONDS - begun))
  else
    printf -- '--- %s: FAILED after %d s\n' "$current_step" $((SECONDS - begun))
    failed_steps+=("$current_step")
  fi
}

# Reports a step that cannot run here, at once and in the summary.
skipped() { # reason
  printf 'SKIPPED: %s\n' "$1"
  skipped_steps+=("$current_step: $1")
}

# Repeats failed tests of a step in the summary, which is what people read of a long log.
note_failures() { # file with the output of tests
  local each
  while IFS= read -r each; do failure_notes+=("$each"); done < <(
    grep -aE '^test .* FAILED$|^thread .* panicked at |^error: ' "$1" | head -n 20
  )
}

# Prints the summary. A script that ends with it has its status.
verdict() {
  printf '\n=== after %d s\n' "$SECONDS"
  local each
  for each in "${skipped_steps[@]}"; do printf 'skipped: %s\n' "$each"; done
  for each in "${failed_steps[@]}"; do printf 'FAILED: %s\n' "$each"; done
  for each in "${failure_notes[@]}"; do printf '  %s\n' "$each"; done
  [ ${#failed_steps[@]} -eq 0 ] && echo "all steps passed"
}

# Makes cargo compile every file with a checked query again.
touch_queries() {
  local files
  files=$(grep -rlE --include='*.rs' 'query(_as|_scalar)?!' services shared tests)
  # shellcheck disable=SC2086
  [ -z "$files" ] || touch -c $files
}
