-- Why it is as it is, in the words of its node: above all why it does not end.
alter table container add column reason text;
