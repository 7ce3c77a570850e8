-- Creates the two roles and the schema of one service, if they are missing.
-- The names are settings of the session, so that this text is the same for every service:
--   hayward.schema    the schema, which is also the name of the runner role
--   hayward.password  the password of the runner; empty leaves the password unchanged
-- No statement needs a superuser. The caller must be able to create roles, and to create schemas in
-- this database.

do $$
declare
    runner text := current_setting('hayward.schema');
    owner  text := runner || '_owner';
    secret text := current_setting('hayward.password');
    role   text;
    setting text[];
    member text := case when current_setting('server_version_num')::int >= 160000
                        then 'SET' else 'MEMBER' end;
begin
    if not exists (select from pg_roles where rolname = owner) then
        execute format('create role %I nologin', owner);
    end if;
    if not exists (select from pg_roles where rolname = runner) then
        execute format('create role %I login', runner);
    end if;
    if secret <> '' then
        execute format('alter role %I password %L', runner, secret);
    end if;

    -- A role is altered only if its setting differs. Roles belong to the whole server, so two
    -- databases that are prepared at the same time would change the same row.
    foreach role in array array[owner, runner] loop
        if not exists (
            select from pg_roles
            where rolname = role
              and rolconfig @> array['search_path=' || quote_ident(runner)]
        ) then
            execute format('alter role %I set search_path to %I', role, runner);
        end if;
    end loop;

    -- Every session of the runner has timeouts, also a session from outside our connection pools.
    -- The values equal those of the pools (S25).
    foreach setting slice 1 in array array[
        ['statement_timeout', '20000'],
        ['lock_timeout', '5000'],
        ['idle_in_transaction_session_timeout', '10000']
    ] loop
        if not exists (
            select from pg_roles
            where rolname = runner and rolconfig @> array[setting[1] || '=' || setting[2]]
        ) then
            execute format('alter role %I set %I to %L', runner, setting[1], setting[2]);
        end if;
    end loop;

    -- The creator of a role is not yet a member of the role. Only a member may act as the owner.
    if not pg_has_role(current_user, owner, member) then
        execute format('grant %I to current_user', owner);
    end if;

    if not exists (select from pg_namespace where nspname = runner) then
        execute format('create schema %I authorization %I', runner, owner);
    elsif (select pg_get_userbyid(nspowner) from pg_namespace where nspname = runner) <> owner then
        raise exception 'schema % exists but does not belong to %', runner, owner;
    end if;

    -- Older servers let every role create tables in `public`, outside the schemas of services.
    if to_regnamespace('public') is not null
       and has_schema_privilege(runner, 'public', 'create') then
        revoke create on schema public from public;
        if has_schema_privilege(runner, 'public', 'create') then
            raise exception 'every role may create in schema public of this database'
                using hint = 'its owner must run: revoke create on schema public from public';
        end if;
    end if;

    -- The owner grants these rights, so that they also apply to tables that it creates later.
    execute format('set local role %I', owner);
    execute format('grant usage on schema %I to %I', runner, runner);
    execute format('alter default privileges in schema %I
        grant select, insert, update, delete on tables to %I', runner, runner);
    execute format('alter default privileges in schema %I
        grant usage, select on sequences to %I', runner, runner);
end
$$;
