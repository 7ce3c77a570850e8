-- What each generation of the policy had other than the one before: a line for each place, as
-- people read it. Written with the generation, so that the history is told without reading every
-- document.
alter table policy add column changes json not null default '[]';
