-- Earliest time of the next attempt; null where it waits for nothing.
alter table attempt add column retry_at_ms bigint;
