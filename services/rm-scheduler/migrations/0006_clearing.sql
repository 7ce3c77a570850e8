-- How far the emptying of nodes and workers is: written in the transaction of the round that
-- changed it, so that a new term goes on counting where the last one stopped, and takes no more
-- work apart at one time than its disruption limit allows.
create table clearing (
    -- As in `blocks`, and drain/NAME.
    key text primary key,
    -- Which order it is about, since when it is in force, and what stood there, with what has
    -- become of each.
    body json not null
);
