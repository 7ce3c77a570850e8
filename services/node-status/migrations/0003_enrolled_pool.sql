-- S14, S15: the pool that a node was enrolled for; null for any.
alter table enrolment add column pool text;
alter table node_limit add column pool text;
