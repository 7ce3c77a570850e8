-- What the owner of a pool last said of a worker: it has nothing to do. Until it says so, it is
-- busy.
alter table pool_worker add column idle boolean not null default false;
