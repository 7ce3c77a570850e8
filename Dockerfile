# One image with one program and links to it: the name of the link selects the command line, a
# service or the agent. docker-compose.yml chooses the command of each container.
#
# The runtime stage comes first, so that `--target runtime` compiles nothing: `just images` adds
# binaries that were built outside.
FROM debian:trixie-slim AS runtime
# `hayward backup` and `restore` call the client programs of Postgres, which work with servers of
# their own version and older ones. Their package depends on Perl; the programs need two libraries
# only.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libpq5 libreadline8t64 \
    && cd /tmp && apt-get download postgresql-client-17 \
    && dpkg -x postgresql-client-17_*.deb client \
    && cd client/usr/lib/postgresql/17/bin \
    && install -D -t /usr/lib/postgresql/17/bin pg_dump pg_restore psql \
    && apt-get clean \
    && rm -rf /tmp/client /tmp/postgresql-client-17_*.deb /var/lib/apt/lists/*
# A fixed number, because volumes store owners by number.
RUN groupadd --system --gid 7400 hayward \
    && useradd --system --uid 7400 --gid hayward --home-dir /state --no-create-home hayward \
    && install -d -o hayward -g hayward -m 0700 /keys /state /backups
# Programs that find this file refuse `allow_insecure` (S3).
RUN install -D -m 0444 /dev/null /usr/share/hayward/release
RUN for name in job-converter rm-scheduler container-manager node-status blocklist node-agent; do \
        ln -s hayward "/usr/local/bin/hayward-$name"; \
    done
COPY docker/first-start.sh docker/prepare.sh docker/renew.sh docker/pg_hba.conf \
    /usr/local/lib/hayward/
USER hayward
WORKDIR /state
CMD ["hayward", "--help"]

FROM rust:1.95-trixie AS build
WORKDIR /source
COPY . .
# Queries are checked against the data in `.sqlx`, so no database is needed here.
ENV SQLX_OFFLINE=true
# The profile `dist` makes a smaller and faster program; it takes three times as long to build.
ARG PROFILE=release
RUN cargo build --profile "$PROFILE" --locked -p hayward \
    && install -D "target/$PROFILE/hayward" /binaries/hayward
RUN scripts/bom.sh >/bom.json

FROM runtime
# The bill of materials of the program, as CycloneDX JSON (S26).
COPY --from=build /bom.json /usr/share/hayward/bom.json
LABEL hayward.bom="/usr/share/hayward/bom.json"
COPY --from=build /binaries/ /usr/local/bin/
