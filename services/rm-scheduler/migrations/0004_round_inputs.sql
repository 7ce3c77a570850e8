-- What rounds were planned from and what was planned, so that they can be replayed. A round of a
-- chain is what differs from the round before it; the first one of a chain is whole.
create table round_inputs (
    round bigint primary key,
    -- First round of its chain.
    base bigint not null,
    -- Of the body, also of one that was too large to keep; 0 when encoding it took too long.
    bytes bigint not null,
    -- Deflated JSON. Absent when it could not be kept; then nothing of its chain follows.
    body bytea
);

-- It is deflated already.
alter table round_inputs alter column body set storage external;

create index round_inputs_base on round_inputs (base);
