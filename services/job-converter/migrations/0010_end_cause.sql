-- Cause of the end of a run, and one sentence for people; null where they follow from exit status,
-- signal and error.
alter table outcome add column end_cause text, add column end_message text;
alter table attempt add column end_cause text, add column end_message text;
