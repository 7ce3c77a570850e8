//! Who changes what in one batch: gathered command by command, written down with the commit.
//!
//! People and parties outside have a record for each of their commands. Parts of the fleet report
//! thousands of times a second, and the service decides by itself: all of that together is one
//! record of the commit, with a digest of everything it changed (I19 at a bounded cost).

use std::collections::BTreeMap;

use hayward_service::http::origin::{ActorKind, CommandOrigin};
use hayward_vocabulary::Timestamp;
use sha2::{Digest as _, Sha256};

use super::record::{AuditOutcome, AuditRecord, Digest};
use crate::published::Body;
use crate::publisher::EntryKey;

/// Bytes of an object at most: a path may be much longer.
pub(super) const LONGEST_OBJECT: usize = 256;

/// What one command, or the fleet in one batch, did.
#[derive(Default)]
struct Deed {
    asked: Option<CommandOrigin>,
    /// It added rows.
    grew: bool,
    changed: u64,
    entry: Option<String>,
    before: Option<Sha256>,
    after: Option<Sha256>,
}

/// The deeds of one batch. The first is that of the fleet.
pub(crate) struct Deeds {
    all: Vec<Deed>,
    current: usize,
    reports: BTreeMap<ActorKind, u64>,
}

impl Default for Deeds {
    fn default() -> Self {
        Self {
            all: vec![Deed::default()],
            current: 0,
            reports: BTreeMap::new(),
        }
    }
}

impl Deeds {
    /// A command is about to be applied.
    pub fn begin(&mut self, asked: Option<CommandOrigin>) {
        self.current = 0;
        let Some(asked) = asked else {
            return;
        };
        let kind = asked.origin.kind();
        if kind.is_fleet() {
            *self.reports.entry(kind).or_default() += 1;
            return;
        }
        self.current = self.all.len();
        self.all.push(Deed {
            asked: Some(asked),
            ..Deed::default()
        });
    }

    /// It was applied; what follows is the service's own.
    pub fn end(&mut self, grew: bool) {
        if let Some(deed) = self.all.get_mut(self.current) {
            deed.grew |= grew;
        }
        self.current = 0;
    }

    /// Whose doing the next change is.
    pub fn doer(&self) -> usize {
        self.current
    }

    /// An entry was changed by `doer`. In order of key, so that digests are the same again.
    pub fn changed(&mut self, doer: usize, key: &EntryKey, before: &Body, after: &Body) {
        let Some(deed) = self.all.get_mut(doer) else {
            return;
        };
        deed.changed += 1;
        let (publication, scope, name) = key;
        deed.entry.get_or_insert_with(|| match scope.as_str() {
            "" => format!("{publication}/{name}"),
            _ => format!("{publication}/{scope}/{name}"),
        });
        digest(&mut deed.before, key, before);
        digest(&mut deed.after, key, after);
    }

    /// The records of a batch that is committed, without their places in the chain.
    pub fn records(self, service: &str, revision: u64, at: Timestamp) -> Vec<AuditRecord> {
        let mut deeds = self.all.into_iter();
        let fleet = deeds.next().unwrap_or_default();
        let did = |deed: &Deed| deed.grew || deed.changed > 0;
        let mut records: Vec<_> = deeds
            .filter(did)
            .filter_map(|deed| {
                let record = of_request(deed.asked.as_ref()?, revision, at);
                Some(with_changes(record, deed))
            })
            .collect();
        // I19: no commit is without one, whatever it was that changed rows in place.
        if did(&fleet) || records.is_empty() {
            let record = of_fleet(service, &self.reports, (revision, at));
            records.push(with_changes(record, fleet));
        }
        records
    }
}

/// Lengths go in, so that no part can lend bytes to the next.
fn digest(digest: &mut Option<Sha256>, (publication, scope, name): &EntryKey, body: &Body) {
    let Some(body) = body else {
        return;
    };
    let digest = digest.get_or_insert_with(Sha256::new);
    for part in [publication, scope.as_str(), name, body.get()] {
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        digest.update(length.to_be_bytes());
        digest.update(part);
    }
}

fn with_changes(record: AuditRecord, deed: Deed) -> AuditRecord {
    let end = |digest: Sha256| Digest(digest.finalize().into());
    AuditRecord {
        entry: deed.entry.map(short),
        changed: deed.changed,
        digest_before: deed.before.map(end),
        digest_after: deed.after.map(end),
        ..record
    }
}

/// What a request says of itself.
pub(super) fn of_request(asked: &CommandOrigin, revision: u64, at: Timestamp) -> AuditRecord {
    let origin = &asked.origin;
    AuditRecord {
        number: 0,
        revision,
        at,
        outcome: AuditOutcome::Committed,
        status: None,
        actor: origin.actor().to_owned(),
        subject: origin.subject().to_owned(),
        kind: origin.kind().as_str().to_owned(),
        address: origin.address(),
        method: origin.method().to_owned(),
        route: origin.route().to_owned(),
        object: short(origin.path().to_owned()),
        entry: None,
        requests: 1,
        changed: 0,
        digest_before: None,
        digest_after: None,
        request_id: asked.request_id.clone(),
        trace_id: asked.trace_id.clone(),
        hash: Digest::default(),
    }
}

fn of_fleet(
    service: &str,
    reports: &BTreeMap<ActorKind, u64>,
    (revision, at): (u64, Timestamp),
) -> AuditRecord {
    let words = reports.iter();
    let words: Vec<_> = words
        .map(|(kind, count)| format!("{} {count}", kind.as_str()))
        .collect();
    AuditRecord {
        number: 0,
        revision,
        at,
        outcome: AuditOutcome::Committed,
        status: None,
        actor: service.to_owned(),
        subject: service.to_owned(),
        kind: "fleet".to_owned(),
        address: None,
        method: String::new(),
        route: String::new(),
        object: words.join(", "),
        entry: None,
        requests: reports.values().sum(),
        changed: 0,
        digest_before: None,
        digest_after: None,
        request_id: None,
        trace_id: None,
        hash: Digest::default(),
    }
}

fn short(mut text: String) -> String {
    if text.len() > LONGEST_OBJECT {
        let end = (0..=LONGEST_OBJECT).rev();
        let end = end.into_iter().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    text
}
