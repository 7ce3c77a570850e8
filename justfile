# Recipes of the repository. `just` alone lists them.

_default:
    @just --list --unsorted

# start a fleet: Postgres if none is set, five services, three agents; Ctrl-C ends it
up *ARGS:
    cargo run --release -p hayward -- up {{ ARGS }}

# run real work of two users on a new fleet and check every result
demo *ARGS:
    cargo run --release -p hayward -- demo {{ ARGS }}

# run all tests, or those of one crate: `just test node-status`
test NAME='':
    cargo test {{ if NAME == '' { '--workspace' } else { '-p hayward-' + NAME } }}

# check format, clippy, bans and licences, offline query data, house tests
check:
    scripts/check.sh

# rewrite golden files; read the diff before committing it
bless:
    BLESS=1 INSTA_UPDATE=always cargo test --workspace --no-fail-fast

# rebuild .sqlx/ from the migrations
sql:
    scripts/sql.sh

# start a fleet of separate containers
compose *ARGS:
    docker-compose up {{ ARGS }}

# make the image of the compose stack from binaries built here
images:
    scripts/images.sh

# measure the figures, each with a baseline of the same run
bench *ARGS:
    cargo run --release -p hayward -- bench {{ ARGS }}

# test a fleet with foreign programs: schemathesis, generated clients, a collector
strangers:
    tests/schemathesis.sh
    tests/generated-clients.sh
    tests/collector.sh

# break a fleet of real processes by a seed and check every promise
faults SEED MINUTES *ARGS:
    cargo build -p hayward -p hayward-tests-faults
    target/debug/hayward-faults {{ SEED }} {{ MINUTES }} {{ ARGS }}
