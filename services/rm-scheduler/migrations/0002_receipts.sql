-- What was taken back for the sake of others: who gave it up, for whom, what was lost with it and
-- what came of it. The newest ten thousand.
create table receipt (
    -- Grows with every receipt, so that the oldest can be dropped.
    number bigint primary key,
    -- The whole receipt; its outcome is filled in when it is known.
    body json not null
);
