-- What a round leaves for the next one (14.1): written in the transaction of the round that changed
-- it, read when a term begins. One line for each thing remembered, so that a round writes what it
-- changed and not all there is.
create table carried (
    -- needy, upgrade, ended, claim, hit, class or user.
    kind text not null,
    -- The piece of work, the class, or the user and the class.
    name text not null,
    body json not null,
    primary key (kind, name)
);
