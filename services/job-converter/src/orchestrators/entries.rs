//! Published entries of an orchestrator's work: demand, shares and state.

use std::collections::BTreeMap;

use hayward_job_converter_api::orchestrators::{
    Leave, OrchestratorCounts, OrchestratorView, RefusedEntry, ShareEntry, Standing, WorkStanding,
};
use hayward_job_converter_api::{DemandEntry, NOT_YET_CONSIDERED};
use hayward_job_converter_domain::convert;
use hayward_job_converter_domain::orchestrated::Over;
use hayward_rm_scheduler_api::{AllocationEntry, VerdictEntry};
use hayward_vocabulary::{
    Launch, Orchestrated, Program, UserName, WhenUnreachable, WorkId, WorkKind,
};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{Entry, OrchestratorRecord, Work};
use crate::work::projections::wire_name;

/// Maximum number of faults in a view.
const MAX_FAULTS: usize = 100;

/// Returns the demand entry of a piece of work.
pub fn demand(work: &Work, entry: &Entry, now_ms: u64, stop_grace_ms: u64) -> Option<DemandEntry> {
    let explained = &entry.0;
    let held_at = work.is_held_back(now_ms).then(|| work.alive());
    let want = convert(
        entry.max_processes(),
        entry.remaining().max(1),
        explained.time_per_item_ms.filter(|ms| *ms > 0),
        held_at,
        None,
    )?;
    let launch = launch(work, entry, stop_grace_ms);
    let group = explained.service.as_deref();
    Some(DemandEntry {
        work: work.id.clone(),
        kind: entry.kind(),
        user: explained.owner.clone(),
        class: explained.class.clone(),
        submitted_at: explained.submitted_at.unwrap_or(work.arrived_at),
        size: entry.size(),
        max_processes: want.max_processes,
        remaining_tasks: want.remaining_tasks,
        threads: entry.threads(),
        task_ms: want.task_ms,
        machines: explained.machines.clone(),
        service: group.map(|group| service(&work.orchestrator, group)),
        disruption_limit: None,
        when_unreachable: WhenUnreachable::default(),
        processor: None,
        apart: None,
        host: None,
        part: None,
        queued: None,
        orchestrated: Some(Box::new(vacated(work, entry, launch.is_none()))),
        settled: work.settled.clone(),
        launch,
        traceparent: None,
    })
}

fn vacated(work: &Work, entry: &Entry, own_processes: bool) -> Orchestrated {
    use hayward_job_converter_api::orchestrators::EntryKind;
    let ours = entry
        .initialised()
        .filter(|share| work.shares.contains_key(*share));
    Orchestrated {
        orchestrator: work.orchestrator.to_string(),
        managed: entry.0.kind == EntryKind::ManagedReservation,
        starting: entry.starting(),
        completing: entry.completing(),
        own_processes: own_processes && entry.kind() != WorkKind::Reservation,
        running: ours.filter(|_| own_processes).cloned().collect(),
    }
}

/// Returns the service id that all instances share. It is unique per orchestrator.
fn service(orchestrator: &UserName, name: &str) -> WorkId {
    let digest = Sha256::digest(format!("{orchestrator}/{name}"));
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    WorkId::fresh(WorkKind::Service, Uuid::from_bytes(first))
}

fn launch(work: &Work, entry: &Entry, stop_grace_ms: u64) -> Option<Launch> {
    let order = entry.0.launch.as_ref()?;
    let mut environment = order.environment.clone();
    let ours = [
        ("HAYWARD_ORCHESTRATOR", work.orchestrator.to_string()),
        ("HAYWARD_ORCHESTRATED_WORK", work.name.clone()),
    ];
    environment.extend(ours.map(|(name, value)| (name.to_owned(), value)));
    Some(Launch {
        program: Program::Command {
            argv: order.command.clone(),
        },
        environment,
        working_directory: order.working_directory.clone(),
        stop_grace_ms,
        traceparent: None,
        within: None,
    })
}

pub fn share(work: &Work, entry: &AllocationEntry) -> ShareEntry {
    let leave = |vacate: &hayward_rm_scheduler_api::Vacate| Leave {
        reason: wire_name(&vacate.reason),
        detail: vacate.detail.clone(),
        since: vacate.since,
        purge: vacate.purge,
    };
    ShareEntry {
        id: entry.id.clone(),
        work: work.name.clone(),
        node: entry.node.clone(),
        order: entry.order,
        size: entry.size.clone(),
        state: wire_name(&entry.state),
        granted_at: entry.granted_at,
        vacate: entry.vacate.as_ref().map(leave),
        exit: entry.exit.clone(),
    }
}

pub fn state(
    work: &Work,
    entry: &Entry,
    over: Option<Over>,
    verdict: Option<&VerdictEntry>,
    fault: Option<&RefusedEntry>,
) -> WorkStanding {
    let held = work.held();
    let state = match over {
        Some(Over::Refused) => Standing::Refused,
        Some(_) => Standing::Over,
        None if held > 0 => Standing::Held,
        None => Standing::Waiting,
    };
    let waits = over.is_none() && held < entry.max_processes();
    let verdict = verdict.filter(|_| waits);
    let mut published = WorkStanding {
        work: work.name.clone(),
        id: Some(work.id.clone()),
        state,
        held,
        reason: verdict.map(|verdict| wire_name(&verdict.reason)),
        detail: verdict.map(|verdict| verdict.detail.clone()),
        pointer: None,
    };
    if let (Standing::Refused, Some(reason)) = (state, &work.reason) {
        let (code, detail) = reason.split_once(' ').unwrap_or((reason, ""));
        published.reason = Some(code.to_owned());
        published.detail = Some(detail.to_owned());
    } else if state == Standing::Waiting && published.reason.is_none() {
        published.reason = Some(NOT_YET_CONSIDERED.to_owned());
    }
    if let Some(fault) = fault {
        published.reason = Some(fault.reason.clone());
        let detail = format!(
            "its entry is refused, the one before is in force: {}",
            fault.detail
        );
        published.detail = Some(detail);
        published.pointer = Some(fault.pointer.clone());
    }
    published
}

/// Returns the stored text of a refusal: the code, then a sentence.
pub fn refusal(verdict: &VerdictEntry) -> String {
    format!("{} {}", wire_name(&verdict.reason), verdict.detail)
}

/// Returns the entry of work that requests nothing.
pub fn idle(name: &str, fault: Option<&RefusedEntry>) -> WorkStanding {
    WorkStanding {
        work: name.to_owned(),
        id: None,
        state: fault.map_or(Standing::Over, |_| Standing::Refused),
        held: 0,
        reason: fault.map(|fault| fault.reason.clone()),
        detail: fault.map(|fault| fault.detail.clone()),
        pointer: fault.map(|fault| fault.pointer.clone()),
    }
}

pub fn view(name: &UserName, record: &OrchestratorRecord) -> OrchestratorView {
    let mark = record.map.mark();
    OrchestratorView {
        name: name.clone(),
        users: record.users.clone().unwrap_or_default(),
        anyone: record.users.is_none(),
        created_at: record.created_at,
        lineage: mark.map(|mark| mark.lineage.clone()),
        sequence: mark.map(|mark| mark.sequence),
        accepted_at: record.accepted_at,
        age_ms: None,
        silent: false,
        note: None,
        counts: OrchestratorCounts::default(),
        faults: record.faults.values().take(MAX_FAULTS).cloned().collect(),
    }
}

/// Refused entries by name.
pub type Faults = BTreeMap<String, RefusedEntry>;
