-- Run as the owner after the migrations: the runner may read and write every row of its schema,
-- and may read but not rewrite the record of the migrations.

do $$
declare
    runner text := current_setting('hayward.schema');
    ledger text;
begin
    execute format('grant select, insert, update, delete on all tables in schema %I to %I',
        runner, runner);
    execute format('grant usage, select on all sequences in schema %I to %I', runner, runner);
    for ledger in
        select tablename from pg_tables
        where schemaname = runner and tablename like '\_%migrations'
    loop
        execute format('revoke insert, update, delete on %I.%I from %I', runner, ledger, runner);
    end loop;
end
$$;
