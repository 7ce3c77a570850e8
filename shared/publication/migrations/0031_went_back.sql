-- Why nothing is written any more: somebody has seen more of this history than the database holds
-- (R9). Null while all is well. It is kept here so that neither a restart nor another replica goes
-- on before an operator has decided; the decision gives the rows another lineage.
alter table writer add column went_back text;
