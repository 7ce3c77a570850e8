-- Never two at once: its node ends it by itself when its lease runs out (I4). Fixed with the order.
alter table container add column exclusive boolean not null default false;
