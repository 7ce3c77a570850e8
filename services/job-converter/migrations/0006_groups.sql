-- Groups of who submitted it, as their token named them then: a list of names. Null when it named
-- none. Applications keep theirs in their body.
alter table work add column groups json;
