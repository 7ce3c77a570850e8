//! Responses to maps: which entries are accepted, and why others are not.

use std::collections::BTreeMap;

use hayward_job_converter_api::orchestrators::{MapAnswer, MapCounts, RefusedEntry};
use hayward_job_converter_domain::orchestrated::{Counts, Ignored, Known, Piece as _};

use super::parse::{ParsedMap, refused};
use super::{Entry, OrchestratorRecord};

/// Splits a map into accepted and refused entries.
pub(super) fn sorted(
    map: &ParsedMap,
    record: &OrchestratorRecord,
    mut headroom: usize,
) -> (BTreeMap<String, Entry>, Vec<RefusedEntry>) {
    let (mut works, mut bad) = (map.good.clone(), map.bad.clone());
    works.retain(|id, entry| {
        let owner = &entry.0.owner;
        let known = record.map.get(id);
        if let Some((pointer, detail)) = known.and_then(|known| other_work(known, entry)) {
            bad.push(refused(id, "invalid", pointer, detail));
            return false;
        }
        let open = known.is_some_and(|known| known.over.is_none());
        let within = map.tenant.as_ref().is_none_or(|it| it.has(owner.as_str()));
        let charged = record.may_charge(owner) && within;
        if !open && !charged {
            let detail = format!("this orchestrator may not charge {owner}");
            bad.push(refused(id, "not_authorised", "/owner", &detail));
            return false;
        }
        if record.ids.contains_key(id) || !entry.schedulable() {
            return true;
        }
        if headroom == 0 {
            let detail = "the limit of open work is reached";
            bad.push(refused(id, "too_much_work", "", detail));
            return false;
        }
        headroom -= 1;
        true
    });
    bad.sort_by(|a, b| a.work.cmp(&b.work));
    (works, bad)
}

/// Returns the pointer and detail of a change that a known piece of work does not allow.
fn other_work(known: &Known<Entry>, entry: &Entry) -> Option<(&'static str, &'static str)> {
    let (before, now, open) = (&known.piece.0, &entry.0, known.over.is_none());
    let detail = "is another one than before: name it under another id";
    if before.kind != now.kind {
        Some(("/kind", detail))
    } else if open && before.owner != now.owner {
        Some(("/owner", detail))
    } else if open && before.launch.is_some() != now.launch.is_some() {
        Some((
            "/launch",
            "is there or not as before: name it under another id",
        ))
    } else {
        None
    }
}

pub(super) fn in_numbers(counts: Counts) -> MapCounts {
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

pub(super) fn not_applied(reason: &str, detail: String) -> MapAnswer {
    MapAnswer {
        reason: Some(reason.to_owned()),
        detail: Some(detail),
        ..MapAnswer::default()
    }
}

pub(super) fn in_words(why: &Ignored) -> (&'static str, String) {
    match why {
        Ignored::Empty => (
            "empty",
            "an empty map is ignored: name each piece of work as completed, or remove the \
             orchestrator"
                .to_owned(),
        ),
        Ignored::Stale { accepted } => (
            "stale",
            format!("map {accepted} of this lineage was accepted before"),
        ),
        Ignored::SequenceUsed => (
            "sequence_used",
            "another map with this sequence was accepted: raise it with each change".to_owned(),
        ),
        Ignored::Superseded => (
            "superseded",
            "another lineage has taken over; this orchestrator is superseded".to_owned(),
        ),
    }
}
