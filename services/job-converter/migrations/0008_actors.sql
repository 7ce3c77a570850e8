-- S11: who submitted work for its user; null where they did it themselves.
alter table work add column actor text;
