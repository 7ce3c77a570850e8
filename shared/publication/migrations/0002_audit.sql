-- Who changed what: one record for each change, written in the transaction of the change and
-- chained, so that none can be altered or left out unseen (S24, I19).

-- The runner role may insert and select here and nothing else (see the rights of the roles).
create table audit (
    -- Without gaps, in order of the chain.
    number bigint primary key,
    -- The commit it belongs to; for a refusal the last one before it.
    revision bigint not null,
    at_ms bigint not null,
    -- `committed` or `refused`.
    outcome text not null,
    -- What a refused request was answered.
    status smallint,
    actor text not null,
    subject text not null,
    kind text not null,
    address text,
    method text not null,
    route text not null,
    object text not null,
    -- The first published entry it changed.
    entry text,
    -- Requests in this record: one, but for parts of the fleet and for refusals that repeat.
    requests bigint not null,
    -- Published entries it changed.
    changed bigint not null,
    -- Digests of these entries, before and after.
    digest_before bytea,
    digest_after bytea,
    request_id text,
    trace_id text,
    -- Of the record before, and of everything above.
    hash bytea not null
);

-- The last record that was pruned, so that the chain still begins somewhere. No row: none was.
create table audit_anchor (
    sole boolean primary key default true check (sole),
    number bigint not null,
    revision bigint not null,
    hash bytea not null,
    pruned_at timestamptz not null default now()
);

-- Records go only through this, which the owner of the table runs: never one younger than 400 days,
-- always the oldest first, a thousand at a time. It says how many went.
do $$
begin
    execute format(
        'create function prune_audit() returns bigint language plpgsql security definer
         set search_path = %I, pg_temp as %L', current_schema(), $body$
declare
    cutoff bigint := (extract(epoch from clock_timestamp() - interval '400 days') * 1000)::bigint;
    young bigint;
    last audit%rowtype;
    gone bigint;
begin
    -- The first that has to stay; where all are old, the last stays.
    select number into young from audit where at_ms >= cutoff order by number limit 1;
    if young is null then
        select max(number) into young from audit;
    end if;
    select * into last from audit where number < young and number < 1001 + (
        select min(number) from audit
    ) order by number desc limit 1;
    if last.number is null then
        return 0;
    end if;
    delete from audit where number <= last.number;
    get diagnostics gone = row_count;
    insert into audit_anchor (number, revision, hash)
    values (last.number, last.revision, last.hash)
    on conflict (sole) do update set number = excluded.number, revision = excluded.revision,
        hash = excluded.hash, pruned_at = excluded.pruned_at;
    return gone;
end
$body$);
end
$$;

revoke execute on function prune_audit() from public;
