//! Refused requests that wait for their audit records. A flood of refusals costs a limited number
//! of records. Equal refusals share one record with a count, and different ones have a limit per
//! second (S24).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hayward_service::http::request_origin::CommandOrigin;
use hayward_vocabulary::Timestamp;
use parking_lot::Mutex;

use super::attribution::request_record;
use super::record::{AuditOutcome, AuditRecord};

/// Maximum number of kinds of waiting refusals. Refusals of other kinds are counted together.
const MAX_KEYS: usize = 64;
/// Minimum time between two writes, so that a flood is collected before it is written.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Records that may be written at once after a quiet period.
const BURST: u32 = 1_000;
/// Records that may be written per second after the burst.
const REFILL_PER_SECOND: u32 = 2;

/// Key of a refusal. Equal refusals share one record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RefusalKey {
    actor: String,
    address: Option<String>,
    method: String,
    route: String,
    status: u16,
}

#[derive(Debug)]
struct Pending {
    by_key: BTreeMap<RefusalKey, AuditRecord>,
    /// Refusals over the limit of waiting kinds.
    others: Option<AuditRecord>,
    /// Number of records that may be written now.
    allowance: f64,
    last_refill: Instant,
    last_write: Option<Instant>,
}

pub(super) struct Refusals(Mutex<Pending>);

impl Refusals {
    pub fn new(now: Instant) -> Self {
        Self(Mutex::new(Pending {
            by_key: BTreeMap::new(),
            others: None,
            allowance: f64::from(BURST),
            last_refill: now,
            last_write: None,
        }))
    }

    pub fn add(&self, origin: &CommandOrigin, status: u16, at: Timestamp) {
        let mut pending = self.0.lock();
        let request = &origin.request;
        let key = RefusalKey {
            actor: request.actor().to_owned(),
            address: request.address(),
            method: request.method().to_owned(),
            route: request.route().to_owned(),
            status,
        };
        if let Some(record) = pending.by_key.get_mut(&key) {
            record.requests += 1;
            return;
        }
        let record = AuditRecord {
            outcome: AuditOutcome::Refused,
            status: Some(status),
            ..request_record(origin, 0, at)
        };
        if pending.by_key.len() < MAX_KEYS {
            pending.by_key.insert(key, record);
        } else {
            pending.add_to_others(record);
        }
    }

    /// Returns whether there is a record to write that may be written now.
    fn is_due(&self, now: Instant) -> bool {
        let mut pending = self.0.lock();
        pending.refill(now);
        let has_records = !pending.by_key.is_empty() || pending.others.is_some();
        let has_paused = pending
            .last_write
            .is_none_or(|at| now.duration_since(at) >= MIN_WRITE_INTERVAL);
        has_records && has_paused && pending.allowance >= 1.0
    }

    /// Takes the records that may be written now. Refusals over the limit share one record.
    pub fn take(&self, now: Instant) -> Vec<AuditRecord> {
        if !self.is_due(now) {
            return Vec::new();
        }
        let mut pending = self.0.lock();
        pending.last_write = Some(now);
        let mut records = Vec::new();
        for (_, record) in std::mem::take(&mut pending.by_key) {
            // The last permitted record is for the refusals over the limit.
            if pending.allowance >= 2.0 {
                pending.allowance -= 1.0;
                records.push(record);
            } else {
                pending.add_to_others(record);
            }
        }
        if let Some(others) = pending.others.take() {
            pending.allowance -= 1.0;
            records.push(others);
        }
        records
    }

    /// Puts back records that could not be written. Only their number of requests remains, so that
    /// repeated failures need no more memory.
    pub fn restore(&self, records: Vec<AuditRecord>) {
        let mut pending = self.0.lock();
        for record in records {
            pending.add_to_others(record);
        }
    }
}

impl Pending {
    fn refill(&mut self, now: Instant) {
        let elapsed = now
            .saturating_duration_since(self.last_refill)
            .as_secs_f64();
        let allowance = self.allowance + elapsed * f64::from(REFILL_PER_SECOND);
        self.allowance = allowance.min(f64::from(BURST));
        self.last_refill = now;
    }

    fn add_to_others(&mut self, record: AuditRecord) {
        match &mut self.others {
            Some(others) => others.requests += record.requests,
            None => {
                self.others = Some(AuditRecord {
                    actor: String::new(),
                    subject: String::new(),
                    kind: "many".to_owned(),
                    status: None,
                    address: None,
                    method: String::new(),
                    route: String::new(),
                    object: String::new(),
                    request_id: None,
                    trace_id: None,
                    ..record
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::Request;
    use hayward_service::Principal;
    use hayward_service::http::request_origin::RequestOrigin;

    use super::*;

    fn request_from(actor: &str) -> CommandOrigin {
        let request = Request::builder().uri("/v1/nodes").body(Body::empty());
        let principal = Principal::new(actor, []);
        RequestOrigin::from_request(&request.unwrap(), Some(principal.into())).for_command()
    }

    fn add(refusals: &Refusals, actor: &str) {
        refusals.add(&request_from(actor), 403, Timestamp::from_unix_ms(5));
    }

    /// A flood costs a limited number of records (S24).
    #[test]
    fn equal_refusals_share_one_record_with_a_count() {
        let start = Instant::now();
        let refusals = Refusals::new(start);
        assert!(!refusals.is_due(start));
        (0..1_000).for_each(|_| add(&refusals, "eve"));
        add(&refusals, "ann");
        let records = refusals.take(start);
        let counts: Vec<_> = records.iter().map(|it| (&*it.actor, it.requests)).collect();
        assert_eq!(counts, [("ann", 1), ("eve", 1_000)]);
        assert_eq!(records[1].status, Some(403));
        assert_eq!(records[1].outcome, AuditOutcome::Refused);
        add(&refusals, "eve");
        assert!(refusals.take(start).is_empty(), "not before a pause");
        assert_eq!(refusals.take(start + MIN_WRITE_INTERVAL).len(), 1);
    }

    /// No refusal is lost from the count (S24).
    #[test]
    fn records_of_different_refusals_are_limited_and_all_are_counted() {
        let start = Instant::now();
        let refusals = Refusals::new(start);
        let (mut written, mut requests) = (0, 0);
        let seconds = 200;
        for second in 0..seconds {
            for number in 0..100 {
                add(&refusals, &format!("eve-{second}-{number}"));
            }
            for record in refusals.take(start + MIN_WRITE_INTERVAL * second) {
                written += 1;
                requests += record.requests;
            }
        }
        assert!(written <= BURST + REFILL_PER_SECOND * seconds, "{written}");
        assert!(written > BURST, "{written}");
        assert_eq!(requests, u64::from(seconds) * 100, "none is lost");
    }

    #[test]
    fn refusals_that_could_not_be_written_are_counted_later() {
        let start = Instant::now();
        let refusals = Refusals::new(start);
        (0..3).for_each(|_| add(&refusals, "eve"));
        let records = refusals.take(start);
        refusals.restore(records);
        let second_batch = refusals.take(start + MIN_WRITE_INTERVAL);
        assert_eq!((second_batch.len(), second_batch[0].requests), (1, 3));
    }
}
