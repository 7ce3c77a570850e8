//! Results of maps: which entries are accepted, why others are refused, and the response.

use std::collections::BTreeMap;

use hayward_job_converter_api::orchestrators::{MapAnswer, MapCounts, RefusedEntry};
use hayward_job_converter_domain::orchestrator_maps::{
    Counts, IgnoredReason, KnownWork, MapEntry as _,
};

use super::parse_map::{ParsedMap, refused_entry};
use super::{Entry, OrchestratorRecord};

/// Splits a map into accepted and refused entries. `headroom` is the number of further pieces of
/// work within the limit on open work.
pub(super) fn split_entries(
    map: &ParsedMap,
    record: &OrchestratorRecord,
    mut headroom: usize,
) -> (BTreeMap<String, Entry>, Vec<RefusedEntry>) {
    let (mut works, mut refused) = (map.entries.clone(), map.refused.clone());
    works.retain(|id, entry| {
        let owner = &entry.fields.owner;
        let known = record.map.get(id);
        if let Some((pointer, detail)) = known.and_then(|known| find_forbidden_change(known, entry))
        {
            refused.push(refused_entry(id, "invalid", pointer, detail));
            return false;
        }
        let is_open = known.is_some_and(|known| known.end_reason.is_none());
        let in_tenant = map.tenant.as_ref().is_none_or(|it| it.has(owner.as_str()));
        let may_charge = record.may_charge(owner) && in_tenant;
        if !is_open && !may_charge {
            let detail = format!("this orchestrator may not charge {owner}");
            refused.push(refused_entry(id, "not_authorised", "/owner", &detail));
            return false;
        }
        if record.uuid_by_entry.contains_key(id) || !entry.is_schedulable() {
            return true;
        }
        if headroom == 0 {
            let detail = "the limit of open work is reached";
            refused.push(refused_entry(id, "too_much_work", "", detail));
            return false;
        }
        headroom -= 1;
        true
    });
    refused.sort_by(|a, b| a.work.cmp(&b.work));
    (works, refused)
}

/// Returns the pointer and detail of a change that a known piece of work does not allow.
fn find_forbidden_change(
    known: &KnownWork<Entry>,
    entry: &Entry,
) -> Option<(&'static str, &'static str)> {
    let (before, now, is_open) = (
        &known.entry.fields,
        &entry.fields,
        known.end_reason.is_none(),
    );
    let detail = "is another one than before: name it under another id";
    if before.kind != now.kind {
        Some(("/kind", detail))
    } else if is_open && before.owner != now.owner {
        Some(("/owner", detail))
    } else if is_open && before.launch.is_some() != now.launch.is_some() {
        Some((
            "/launch",
            "is there or not as before: name it under another id",
        ))
    } else {
        None
    }
}

pub(super) fn to_map_counts(counts: Counts) -> MapCounts {
    MapCounts {
        new: counts.new,
        changed: counts.changed,
        unchanged: counts.unchanged,
        completed: counts.completed,
        gone: counts.gone,
        refused: counts.refused,
        vacated: counts.vacated,
    }
}

/// Returns the response to a map that changed nothing.
pub(super) fn not_applied(reason: &str, detail: String) -> MapAnswer {
    MapAnswer {
        reason: Some(reason.to_owned()),
        detail: Some(detail),
        ..MapAnswer::default()
    }
}

/// Returns the wire name and the description of the reason why a map was ignored.
pub(super) fn describe_ignored(reason: &IgnoredReason) -> (&'static str, String) {
    match reason {
        IgnoredReason::Empty => (
            "empty",
            "an empty map is ignored: name each piece of work as completed, or remove the \
             orchestrator"
                .to_owned(),
        ),
        IgnoredReason::Stale { accepted } => (
            "stale",
            format!("map {accepted} of this lineage was accepted before"),
        ),
        IgnoredReason::SequenceUsed => (
            "sequence_used",
            "another map with this sequence was accepted: raise it with each change".to_owned(),
        ),
        IgnoredReason::Superseded => (
            "superseded",
            "another lineage has taken over; this orchestrator is superseded".to_owned(),
        ),
    }
}
