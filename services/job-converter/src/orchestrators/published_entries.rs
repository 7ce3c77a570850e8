//! Published entries of an orchestrator's work: demand, allocations and state.

use std::collections::BTreeMap;

use hayward_job_converter_api::orchestrators::{
    Leave, OrchestratorCounts, OrchestratorView, RefusedEntry, ShareEntry, Standing, WorkStanding,
};
use hayward_job_converter_api::{DemandEntry, NOT_YET_CONSIDERED};
use hayward_job_converter_domain::compute_demand;
use hayward_job_converter_domain::orchestrator_maps::EndReason;
use hayward_rm_scheduler_api::{AllocationEntry, VerdictEntry};
use hayward_vocabulary::launch::LaunchLimits;
use hayward_vocabulary::{
    Launch, Orchestrated, Program, UserName, WhenUnreachable, WorkId, WorkKind,
};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{Entry, OrchestratorRecord, Work};
use crate::work::published_entries::wire_name;

/// Maximum number of faults in a view.
const MAX_FAULTS: usize = 100;

/// Returns the demand entry of a piece of work.
pub fn demand_entry(
    work: &Work,
    entry: &Entry,
    now_ms: u64,
    stop_grace_ms: u64,
) -> Option<DemandEntry> {
    let fields = &entry.fields;
    let held_processes = work.is_held_back(now_ms).then(|| work.live_count());
    let want = compute_demand(
        entry.max_processes(),
        entry.remaining_items().max(1),
        fields.time_per_item_ms.filter(|ms| *ms > 0),
        held_processes,
        None,
    )?;
    let launch = launch(work, entry, stop_grace_ms);
    let service_name = fields.service.as_deref();
    Some(DemandEntry {
        work: work.id.clone(),
        kind: entry.kind(),
        user: fields.owner.clone(),
        class: fields.class.clone(),
        submitted_at: fields.submitted_at.unwrap_or(work.arrived_at),
        size: entry.size(),
        max_processes: want.max_processes,
        remaining_tasks: want.remaining_tasks,
        threads: entry.threads(),
        task_ms: want.task_ms,
        machines: fields.machines.clone(),
        service: service_name.map(|service_name| service_id(&work.orchestrator, service_name)),
        disruption_limit: None,
        when_unreachable: WhenUnreachable::default(),
        processor: None,
        apart: None,
        host: None,
        part: None,
        queued: None,
        orchestrated: Some(Box::new(orchestrated_fields(work, entry, launch.is_none()))),
        settled: work.settled.clone(),
        launch,
        traceparent: None,
    })
}

fn orchestrated_fields(work: &Work, entry: &Entry, own_processes: bool) -> Orchestrated {
    use hayward_job_converter_api::orchestrators::EntryKind;
    let own_allocations = entry
        .initialised_allocations()
        .filter(|allocation| work.allocations.contains_key(*allocation));
    Orchestrated {
        orchestrator: work.orchestrator.to_string(),
        managed: entry.fields.kind == EntryKind::ManagedReservation,
        starting: entry.is_starting(),
        completing: entry.is_completing(),
        own_processes: own_processes && entry.kind() != WorkKind::Reservation,
        running: own_allocations.filter(|_| own_processes).cloned().collect(),
    }
}

/// Returns the service id that all instances share. It is unique per orchestrator.
fn service_id(orchestrator: &UserName, name: &str) -> WorkId {
    let digest = Sha256::digest(format!("{orchestrator}/{name}"));
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    WorkId::from_uuid(WorkKind::Service, Uuid::from_bytes(first))
}

fn launch(work: &Work, entry: &Entry, stop_grace_ms: u64) -> Option<Launch> {
    let program = entry.fields.launch.as_ref()?;
    let mut environment = program.environment.clone();
    let variables = [
        ("HAYWARD_ORCHESTRATOR", work.orchestrator.to_string()),
        ("HAYWARD_ORCHESTRATED_WORK", work.name.clone()),
    ];
    environment.extend(variables.map(|(name, value)| (name.to_owned(), value)));
    Some(Launch {
        program: Program::Command {
            argv: program.command.clone(),
        },
        environment,
        working_directory: program.working_directory.clone(),
        stop_grace_ms,
        traceparent: None,
        within: None,
        account: None,
        limits: Some(LaunchLimits::of(&entry.size())),
    })
}

/// Returns the published entry of an allocation. The API calls the entry a share.
pub fn allocation_entry(work: &Work, entry: &AllocationEntry) -> ShareEntry {
    let to_leave = |vacate: &hayward_rm_scheduler_api::Vacate| Leave {
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
        vacate: entry.vacate.as_ref().map(to_leave),
        exit: entry.exit.clone(),
    }
}

/// Returns the published entry of a piece of work.
pub fn work_entry(
    work: &Work,
    entry: &Entry,
    end_reason: Option<EndReason>,
    verdict: Option<&VerdictEntry>,
    fault: Option<&RefusedEntry>,
) -> WorkStanding {
    let held = work.held_count();
    let state = match end_reason {
        Some(EndReason::Refused) => Standing::Refused,
        Some(_) => Standing::Over,
        None if held > 0 => Standing::Held,
        None => Standing::Waiting,
    };
    let waits = end_reason.is_none() && held < entry.max_processes();
    let verdict = verdict.filter(|_| waits);
    let mut entry_view = WorkStanding {
        work: work.name.clone(),
        id: Some(work.id.clone()),
        state,
        held,
        reason: verdict.map(|verdict| wire_name(&verdict.reason)),
        detail: verdict.map(|verdict| verdict.detail.clone()),
        pointer: None,
    };
    if let (Standing::Refused, Some(reason)) = (state, &work.refusal_reason) {
        let (code, detail) = reason.split_once(' ').unwrap_or((reason, ""));
        entry_view.reason = Some(code.to_owned());
        entry_view.detail = Some(detail.to_owned());
    } else if state == Standing::Waiting && entry_view.reason.is_none() {
        entry_view.reason = Some(NOT_YET_CONSIDERED.to_owned());
    }
    if let Some(fault) = fault {
        entry_view.reason = Some(fault.reason.clone());
        let detail = format!(
            "its entry is refused, the one before is in force: {}",
            fault.detail
        );
        entry_view.detail = Some(detail);
        entry_view.pointer = Some(fault.pointer.clone());
    }
    entry_view
}

/// Returns the stored text of a refusal: the code, then a sentence.
pub fn refusal_text(verdict: &VerdictEntry) -> String {
    format!("{} {}", wire_name(&verdict.reason), verdict.detail)
}

/// Returns the entry of work that requests nothing.
pub fn idle_entry(name: &str, fault: Option<&RefusedEntry>) -> WorkStanding {
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

/// Returns the published view of an orchestrator.
pub fn orchestrator_view(name: &UserName, record: &OrchestratorRecord) -> OrchestratorView {
    let version = record.map.version();
    OrchestratorView {
        name: name.clone(),
        users: record.users.clone().unwrap_or_default(),
        anyone: record.users.is_none(),
        created_at: record.created_at,
        lineage: version.map(|version| version.lineage.clone()),
        sequence: version.map(|version| version.sequence),
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
