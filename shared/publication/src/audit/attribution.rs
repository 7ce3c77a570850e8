//! Attributes the changes of one batch to their actors, command by command, for the audit records
//! of the commit.
//!
//! Users and external programs get a record for each command. Parts of the fleet report thousands
//! of times a second, and the service makes its own decisions. All of these changes share one
//! record per commit. It has a digest of everything that the commit changed (I19).

use std::collections::BTreeMap;

use hayward_service::http::request_origin::{ActorKind, CommandOrigin};
use hayward_vocabulary::Timestamp;
use sha2::{Digest as _, Sha256};

use super::record::{AuditOutcome, AuditRecord, Digest};
use crate::published::Body;
use crate::publisher::EntryKey;

/// Maximum length of the object of a record, in bytes. Longer paths are cut.
pub(super) const MAX_OBJECT_BYTES: usize = 256;

/// Changes of one command, or of the fleet in one batch.
#[derive(Default)]
struct ActorChanges {
    origin: Option<CommandOrigin>,
    /// Whether the command added rows.
    added_rows: bool,
    /// Number of changed entries.
    changed: u64,
    /// First changed entry.
    entry: Option<String>,
    /// Digest of the entries before the changes.
    before: Option<Sha256>,
    /// Digest of the entries after the changes.
    after: Option<Sha256>,
}

/// Actors of one batch with their changes. The first actor is the fleet.
pub(crate) struct Attribution {
    actors: Vec<ActorChanges>,
    /// Index of the actor of the next change.
    current: usize,
    /// Number of reports of the fleet, by kind of sender.
    reports: BTreeMap<ActorKind, u64>,
}

impl Default for Attribution {
    fn default() -> Self {
        Self {
            actors: vec![ActorChanges::default()],
            current: 0,
            reports: BTreeMap::new(),
        }
    }
}

impl Attribution {
    /// Attributes the next changes to a command, before the command is applied.
    pub fn begin_command(&mut self, origin: Option<CommandOrigin>) {
        self.current = 0;
        let Some(origin) = origin else {
            return;
        };
        let kind = origin.request.kind();
        if kind.is_fleet() {
            *self.reports.entry(kind).or_default() += 1;
            return;
        }
        self.current = self.actors.len();
        self.actors.push(ActorChanges {
            origin: Some(origin),
            ..ActorChanges::default()
        });
    }

    /// Ends the command after it was applied. Later changes belong to the service.
    pub fn end_command(&mut self, added_rows: bool) {
        if let Some(changes) = self.actors.get_mut(self.current) {
            changes.added_rows |= added_rows;
        }
        self.current = 0;
    }

    /// Returns the actor of the next change.
    pub fn current_actor(&self) -> usize {
        self.current
    }

    /// Records that `actor` changed an entry. Calls are in order of key, so that digests are
    /// reproducible.
    pub fn record_change(&mut self, actor: usize, key: &EntryKey, before: &Body, after: &Body) {
        let Some(changes) = self.actors.get_mut(actor) else {
            return;
        };
        changes.changed += 1;
        let EntryKey {
            publication,
            scope,
            key: name,
        } = key;
        changes.entry.get_or_insert_with(|| match scope.as_str() {
            "" => format!("{publication}/{name}"),
            _ => format!("{publication}/{scope}/{name}"),
        });
        update_digest(&mut changes.before, key, before);
        update_digest(&mut changes.after, key, after);
    }

    /// Returns the records of a committed batch. They have no position in the chain yet.
    pub fn into_records(self, service: &str, revision: u64, at: Timestamp) -> Vec<AuditRecord> {
        let mut actor_changes = self.actors.into_iter();
        let fleet = actor_changes.next().unwrap_or_default();
        let has_changes = |changes: &ActorChanges| changes.added_rows || changes.changed > 0;
        let mut records: Vec<_> = actor_changes
            .filter(has_changes)
            .filter_map(|changes| {
                let record = request_record(changes.origin.as_ref()?, revision, at);
                Some(with_changes(record, changes))
            })
            .collect();
        // Every commit gets a record, even if it changed only rows (I19).
        if has_changes(&fleet) || records.is_empty() {
            let record = fleet_record(service, &self.reports, revision, at);
            records.push(with_changes(record, fleet));
        }
        records
    }
}

/// Adds an entry to a digest. The lengths are included, so that bytes cannot move from one part to
/// the next.
fn update_digest(digest: &mut Option<Sha256>, entry: &EntryKey, body: &Body) {
    let Some(body) = body else {
        return;
    };
    let digest = digest.get_or_insert_with(Sha256::new);
    for part in [entry.publication, &entry.scope, &entry.key, body.get()] {
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        digest.update(length.to_be_bytes());
        digest.update(part);
    }
}

fn with_changes(record: AuditRecord, changes: ActorChanges) -> AuditRecord {
    let finish = |digest: Sha256| Digest(digest.finalize().into());
    AuditRecord {
        entry: changes.entry.map(truncate),
        changed: changes.changed,
        digest_before: changes.before.map(finish),
        digest_after: changes.after.map(finish),
        ..record
    }
}

/// Creates a record with the data of the request.
pub(super) fn request_record(origin: &CommandOrigin, revision: u64, at: Timestamp) -> AuditRecord {
    let request = &origin.request;
    AuditRecord {
        number: 0,
        revision,
        at,
        outcome: AuditOutcome::Committed,
        status: None,
        actor: request.actor().to_owned(),
        subject: request.subject().to_owned(),
        kind: request.kind().as_str().to_owned(),
        address: request.address(),
        method: request.method().to_owned(),
        route: request.route().to_owned(),
        object: truncate(request.path().to_owned()),
        entry: None,
        requests: 1,
        changed: 0,
        digest_before: None,
        digest_after: None,
        request_id: origin.request_id.clone(),
        trace_id: origin.trace_id.clone(),
        hash: Digest::default(),
    }
}

fn fleet_record(
    service: &str,
    reports: &BTreeMap<ActorKind, u64>,
    revision: u64,
    at: Timestamp,
) -> AuditRecord {
    let counts = reports.iter();
    let counts: Vec<_> = counts
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
        object: counts.join(", "),
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

fn truncate(mut text: String) -> String {
    if text.len() > MAX_OBJECT_BYTES {
        let end = (0..=MAX_OBJECT_BYTES).rev();
        let end = end.into_iter().find(|index| text.is_char_boundary(*index));
        text.truncate(end.unwrap_or(0));
    }
    text
}
