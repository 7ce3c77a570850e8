-- The output of all containers of one piece of work is read together, in the order it arrived.

-- When it arrived, by the clock of the database: one clock for all replicas that take output in.
alter table output add column at_ms bigint not null
    default (extract(epoch from clock_timestamp()) * 1000)::bigint;

-- The containers of all instances of one piece of work.
create index container_whole on container (split_part(work, '.', 1), id);
