//! Parses the map of an orchestrator, entry by entry. An entry with a fault is refused, and the
//! other entries are accepted.

use std::collections::BTreeMap;
use std::sync::Arc;

use hayward_job_converter_api::orchestrators::{
    EntryKind, OrchestratorOrder, RefusedEntry, WorkEntry, WorkMap,
};
use hayward_service::auth::Tenant;
use hayward_service::http::extract::parse;
use hayward_service::http::problem::{Code, Problem};
use serde_json::value::RawValue;

use super::Entry;
use crate::work::validate;

/// Maximum number of entries of one map.
const MAX_ENTRIES: usize = 10_000;
/// Maximum number of processes of one entry.
const MAX_PROCESSES: usize = 1_000;
const MAX_USERS: usize = 1_000;
const MAX_ID_LENGTH: usize = 128;
/// The field of a map that holds its entries.
const WORK_FIELD: &str = "work";
/// Maximum number of work items. It is small enough that products do not overflow.
const MAX_ITEMS: u64 = 1 << 40;

/// A parsed map.
pub struct ParsedMap {
    pub lineage: String,
    pub sequence: u64,
    /// Revision up to which the orchestrator has read its publication. `None` if the map names
    /// none.
    pub seen: Option<u64>,
    pub entries: BTreeMap<String, Entry>,
    pub refused: Vec<RefusedEntry>,
    /// Tenant of the caller. Only users of this tenant can be charged.
    pub tenant: Option<Arc<Tenant>>,
}

/// Parses a map. `revision_of` returns the revision of a cursor of this service.
pub fn parse_map(
    map: WorkMap<Box<RawValue>>,
    revision_of: impl Fn(&str) -> Option<u64>,
) -> Result<ParsedMap, Problem> {
    let mut faults = Vec::new();
    let mut check = |is_valid: bool, pointer: &'static str, detail: String| {
        if !is_valid {
            faults.push((pointer, detail));
        }
    };
    let is_length_valid = !map.lineage.is_empty() && map.lineage.len() <= MAX_ID_LENGTH;
    check(
        is_length_valid,
        "/lineage",
        format!("must have 1 to {MAX_ID_LENGTH} characters"),
    );
    let is_graphic = map.lineage.chars().all(|it| it.is_ascii_graphic());
    check(
        is_graphic,
        "/lineage",
        "has characters that are no letters, digits or signs".to_owned(),
    );
    let is_sequence_valid = (1..=i64::MAX as u64).contains(&map.sequence);
    check(
        is_sequence_valid,
        "/sequence",
        "must be 1 or more".to_owned(),
    );
    let is_within_limit = map.work.len() <= MAX_ENTRIES;
    check(
        is_within_limit,
        "/work",
        format!("more than {MAX_ENTRIES} entries: use several orchestrators"),
    );
    if !faults.is_empty() {
        let problem = Problem::new(Code::Invalid, "invalid work map");
        let add_fault = |problem: Problem, (pointer, detail)| problem.at(pointer, detail);
        return Err(faults.into_iter().fold(problem, add_fault));
    }
    let mut parsed = ParsedMap {
        lineage: map.lineage,
        sequence: map.sequence,
        seen: map.seen.as_deref().and_then(revision_of),
        entries: BTreeMap::new(),
        refused: Vec::new(),
        tenant: None,
    };
    for (id, text) in map.work {
        match parse_entry(&id, &text) {
            Ok(entry) => drop(parsed.entries.insert(id, entry)),
            Err(refused) => parsed.refused.push(refused),
        }
    }
    Ok(parsed)
}

fn parse_entry(id: &str, text: &RawValue) -> Result<Entry, RefusedEntry> {
    let fault = |pointer: &str, detail: &str| refused_entry(id, "invalid", pointer, detail);
    if id.is_empty() || id.len() > MAX_ID_LENGTH || !id.chars().all(|it| it.is_ascii_graphic()) {
        let detail = format!("the id must have 1 to {MAX_ID_LENGTH} letters, digits or signs");
        return Err(fault("", &detail));
    }
    let entry: WorkEntry = parse(text.get().as_bytes()).map_err(|problem| {
        let first = problem.errors.first();
        let pointer = first.map_or("", |fault| fault.pointer.as_ref());
        fault(
            pointer,
            first.map_or(problem.detail.as_ref(), |it| it.detail.as_ref()),
        )
    })?;
    if let Some((pointer, detail)) = find_invalid_field(&entry) {
        return Err(fault(pointer, &detail));
    }
    match validate::map_entry_faults(&entry).first() {
        Some(first) => Err(fault(&first.pointer, &first.detail)),
        None => Ok(Entry { fields: entry }),
    }
}

/// Returns the pointer and the fault of the first field that the entry cannot have.
fn find_invalid_field(entry: &WorkEntry) -> Option<(&'static str, String)> {
    let job = entry.kind == EntryKind::Job;
    if entry.processes.len() > MAX_PROCESSES {
        return Some(("/processes", format!("more than {MAX_PROCESSES}")));
    }
    if entry.size.is_some() && entry.memory_gb.is_some_and(|gb| gb > 0) {
        let detail = "leave it out where `size` says more";
        return Some(("/memory_gb", detail.to_owned()));
    }
    if job && entry.max_processes == Some(0) {
        let detail = "must be 1 or more; `completing` is how a job asks for nothing more";
        return Some(("/max_processes", detail.to_owned()));
    }
    let limited = [
        ("/work_items", entry.work_items.unwrap_or(0)),
        ("/items_done", entry.items_done),
        ("/items_failed", entry.items_failed),
        ("/max_processes", entry.max_processes.unwrap_or(0)),
        // The factor lowers the limit for memory to 2^16 GiB, so that the size in bytes does not
        // overflow.
        (
            "/memory_gb",
            entry.memory_gb.unwrap_or(0).saturating_mul(1 << 24),
        ),
    ];
    if let Some((pointer, _)) = limited.iter().find(|(_, number)| *number > MAX_ITEMS) {
        return Some((pointer, "more than any fleet has".to_owned()));
    }
    if entry.kind == EntryKind::Reservation && entry.launch.is_some() {
        let detail = "nothing is started on a reservation; a managed one runs a process";
        return Some(("/launch", detail.to_owned()));
    }
    None
}

/// Creates the refusal of an entry. `pointer` is the JSON pointer within the entry.
pub fn refused_entry(work: &str, reason: &str, pointer: &str, detail: &str) -> RefusedEntry {
    let escaped = work.replace('~', "~0").replace('/', "~1");
    RefusedEntry {
        work: work.to_owned(),
        reason: reason.to_owned(),
        pointer: format!("/{WORK_FIELD}/{escaped}{pointer}"),
        detail: detail.to_owned(),
    }
}

/// Checks the request that creates an orchestrator.
pub fn check_request(request: &OrchestratorOrder) -> Result<(), Problem> {
    let invalid =
        |detail: &str| Problem::new(Code::Invalid, "unknown orchestrator").at("/users", detail);
    match (request.users.len(), request.anyone) {
        (0, false) => Err(invalid("name those it works for, or say `anyone`")),
        (0, true) => Ok(()),
        (_, true) => Err(invalid("leave `users` empty with `anyone`")),
        (count, false) if count > MAX_USERS => Err(invalid("more than 1000")),
        _ => Ok(()),
    }
}
