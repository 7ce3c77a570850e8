-- A service can be changed while it lasts.
alter table work
    -- Raised by each change that is accepted; what `If-Match` is compared with.
    add column generation int not null default 1,
    -- The generation that changed last what its processes run: the number of its deployment.
    add column deployed int not null default 1;
