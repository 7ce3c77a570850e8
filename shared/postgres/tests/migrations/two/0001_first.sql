create table thing (id bigint generated always as identity primary key, word text not null);
