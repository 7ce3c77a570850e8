-- Runs as the owner after the migrations. The runner may read and write every row of its schema,
-- with two exceptions: it may only read the records of the migrations, and it may add audit records
-- but never change or remove them. A function of the owner removes old audit records (S24, S25).

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
    if to_regclass(format('%I.audit', runner)) is not null then
        execute format('revoke update, delete on %I.audit from %I', runner, runner);
        execute format('revoke insert, update, delete on %I.audit_anchor from %I',
            runner, runner);
        execute format('grant execute on function %I.prune_audit() to %I', runner, runner);
    end if;
end
$$;
