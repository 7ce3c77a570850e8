//! Retry accounting (section 10): what one more failure of a processor means.

/// On top of the delay before the last retry, for clocks that differ.
pub const SKEW_MS: u64 = 1_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retries {
    /// Below 0: always, without counting.
    pub count: i32,
    pub window_ms: u64,
    pub last_delay_ms: u64,
    /// The service fails with its first processor that has none left.
    pub fail_service: bool,
}

impl Retries {
    pub const FOR_EVER: Self = Self {
        count: -1,
        window_ms: 0,
        last_delay_ms: 0,
        fail_service: false,
    };

    pub fn in_words(&self) -> String {
        match self.count {
            0 => "it may not fail even once".to_owned(),
            count => format!(
                "it failed once more than {count} times, less than {} ms apart",
                self.window_ms
            ),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    pub count: u32,
    /// By the wall clock: it outlives managers.
    pub last_failure_ms: i64,
    pub last_delay_ms: u64,
}

impl Record {
    /// How long its last retry still has to wait, after a restart.
    pub fn waits_ms(&self, now_ms: i64) -> u64 {
        let gone = u64::try_from(now_ms.saturating_sub(self.last_failure_ms)).unwrap_or(0);
        self.last_delay_ms.saturating_sub(gone)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Retried, and nothing is noted.
    Uncounted,
    /// Retried after the record's delay.
    Retry(Record),
    /// No more; the record stays as it was.
    Exhausted,
}

/// `specific`: the retry goes to a certain host.
pub fn account(record: Option<&Record>, retries: &Retries, now_ms: i64, specific: bool) -> Counted {
    // 10.1, 10.2
    let Ok(limit) = u32::try_from(retries.count) else {
        return Counted::Uncounted;
    };
    if limit == 0 {
        return Counted::Exhausted;
    }
    // 10.3: the gap to the failure before counts, not how many there were in any span.
    let count = match record {
        None => 1,
        Some(record) => {
            let delay = i64::try_from(record.last_delay_ms).unwrap_or(i64::MAX);
            let gap = now_ms.saturating_sub(record.last_failure_ms.saturating_add(delay));
            let window = i64::try_from(retries.window_ms).unwrap_or(i64::MAX);
            if gap >= window {
                1
            } else {
                record.count.saturating_add(1)
            }
        }
    };
    // 10.4
    if count > limit {
        return Counted::Exhausted;
    }
    // 10.5
    let last_delay_ms = if count == limit && specific {
        retries.last_delay_ms.saturating_add(SKEW_MS)
    } else {
        0
    };
    Counted::Retry(Record {
        count,
        last_failure_ms: now_ms,
        last_delay_ms,
    })
}
