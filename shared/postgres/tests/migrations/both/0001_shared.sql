create table heard (source text primary key);
