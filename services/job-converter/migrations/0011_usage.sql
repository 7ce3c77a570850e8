-- What a run used; null where it was not measured. Attempts also get their wall time.
alter table outcome
    add column user_us bigint, add column system_us bigint, add column max_rss_bytes bigint,
    add column peak_memory_bytes bigint, add column usage_source text;
alter table attempt
    add column duration_us bigint, add column user_us bigint, add column system_us bigint,
    add column max_rss_bytes bigint, add column peak_memory_bytes bigint,
    add column usage_source text;
