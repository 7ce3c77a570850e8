# The commands of the house. `just` alone lists them.

_default:
    @just --list --unsorted

# Postgres if none is set, five services and agents in one process; Ctrl-C leaves nothing
up *ARGS:
    cargo run --release -p hayward -- up {{ ARGS }}

# two users' jobs, a service, a reservation and a blocked node, checked to the last digest
demo *ARGS:
    cargo run --release -p hayward -- demo {{ ARGS }}

# all tests, or those of one crate: `just test node-status`
test NAME='':
    cargo test {{ if NAME == '' { '--workspace' } else { '-p hayward-' + NAME } }}

# format, clippy, bans and licences, offline query data, house tests
check:
    scripts/check.sh

# rewrite golden files; read the diff before committing it
bless:
    BLESS=1 INSTA_UPDATE=always cargo test --workspace --no-fail-fast

# rebuild .sqlx/ from the migrations
sql:
    scripts/sql.sh

# the same fleet as separate containers
compose *ARGS:
    docker-compose up {{ ARGS }}

# the image of the compose stack from binaries built here
images:
    scripts/images.sh

# the figures, as ratios measured in one run
bench *ARGS:
    cargo run --release -p hayward -- bench {{ ARGS }}

# a fleet tried by programs that are not ours: schemathesis, generated clients, a collector
strangers:
    tests/schemathesis.sh
    tests/generated-clients.sh
    tests/collector.sh

# break a fleet of real processes for so long, by a seed, and check every promise
faults SEED MINUTES *ARGS:
    cargo build -p hayward -p hayward-tests-faults
    target/debug/hayward-faults {{ SEED }} {{ MINUTES }} {{ ARGS }}
