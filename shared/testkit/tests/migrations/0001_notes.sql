create table note (word text primary key);
