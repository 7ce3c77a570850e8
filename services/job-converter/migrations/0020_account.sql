-- Number of each user, from which agents compute the account of programs; the row of a number that
-- was taken away stays, so that no other user gets the number.
create table account (
    number        bigint primary key,
    user_name     text not null,
    retired_at_ms bigint
);
create unique index account_user_name on account (user_name) where retired_at_ms is null;
