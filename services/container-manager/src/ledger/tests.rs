//! Tests of the working set: updates of allocations, reports of agents, and removed containers.

mod exclusive_work;

use std::collections::BTreeMap;

use hayward_container_manager_api::{ContainerReport, ContainerState, Goal, Report};
use hayward_container_manager_domain::Lifecycle;
use hayward_publication::{Ledger as _, Update};
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, ProcessorEntry};
use hayward_vocabulary::{Launch, Program, Size, Timestamp, UserName};

use super::*;
use crate::command::NodeReport;

fn moment(revision: u64) -> Moment {
    Moment {
        now: Timestamp::from_unix_ms(5),
        monotonic_ms: 5,
        revision,
        epoch: 1,
    }
}

/// Creates an allocation of a job on node `n{number % 100}`.
fn allocation(number: usize) -> AllocationEntry {
    AllocationEntry {
        id: AllocationId::new(format!("alc_{number:06}")).unwrap(),
        work: WorkId::new("job_1").unwrap(),
        kind: WorkKind::Job,
        user: UserName::new("ann").unwrap(),
        class: "normal".into(),
        node: NodeName::new(format!("n{}", number % 100)).unwrap(),
        order: 1,
        size: Size::memory(1 << 30),
        incarnation: 1,
        granted_at: Timestamp::from_unix_ms(1),
        running_since: None,
        exclusive: false,
        predecessor: None,
        request: None,
        state: AllocationState::Assigned,
        vacate: None,
        marked: None,
        exit: None,
        launch: Some(Launch {
            program: Program::Command {
                argv: vec!["/bin/true".into()],
            },
            environment: BTreeMap::new(),
            working_directory: None,
            stop_grace_ms: 1000,
            traceparent: None,
            within: None,
            account: None,
            limits: None,
        }),
    }
}

fn update(
    full: bool,
    changed: &[AllocationEntry],
    removed: &[&AllocationEntry],
) -> Update<AllocationEntry> {
    Update {
        cursor: String::new(),
        full,
        changed: changed
            .iter()
            .map(|entry| (entry.id.to_string(), entry.clone()))
            .collect(),
        removed: removed.iter().map(|entry| entry.id.to_string()).collect(),
    }
}

fn empty_ledger() -> Ledger {
    let limits = crate::config::Settings::default().limits();
    Ledger::new(limits.into(), PlacementState::default())
}

fn absorb(ledger: &mut Ledger, update: Update<AllocationEntry>, revision: u64) -> Rows {
    let mut batch = Batch::default();
    ledger.apply_allocation_update(update, &moment(revision), &mut batch);
    batch.rows
}

fn node_report(node: &NodeName, observed_revision: u64, report: &Report) -> NodeReport {
    NodeReport {
        node: node.clone(),
        observed_revision: Some(observed_revision),
        report: report.clone(),
    }
}

fn lifecycles(ledger: &Ledger) -> BTreeMap<AllocationId, Lifecycle> {
    ledger
        .containers
        .iter()
        .map(|(id, container)| (id.clone(), container.lifecycle.clone()))
        .collect()
}

#[test]
fn a_full_update_and_a_delta_leave_the_same_containers() {
    let all: Vec<AllocationEntry> = (0..20).map(allocation).collect();
    let (mut delta_ledger, mut full_ledger) = (empty_ledger(), empty_ledger());
    for ledger in [&mut delta_ledger, &mut full_ledger] {
        absorb(ledger, update(true, &all[..15], &[]), 1);
    }
    let removed: Vec<&AllocationEntry> = all[..5].iter().collect();
    absorb(&mut delta_ledger, update(false, &all[15..], &removed), 2);
    absorb(&mut full_ledger, update(true, &all[5..], &[]), 2);
    assert_eq!(lifecycles(&delta_ledger), lifecycles(&full_ledger));
    assert!(
        lifecycles(&full_ledger)
            .values()
            .filter(|lifecycle| lifecycle.orphan)
            .count()
            == 5
    );
}

fn running_report(entry: &AllocationEntry) -> ContainerReport {
    ContainerReport {
        id: entry.id.clone(),
        incarnation: 1,
        state: ContainerState::Running,
        pid: None,
        started_at: None,
        exit: None,
        reason: None,
    }
}

#[test]
fn only_changed_rows_are_written() {
    let mut ledger = empty_ledger();
    let all: Vec<AllocationEntry> = (0..10_000).map(allocation).collect();
    assert_eq!(
        absorb(&mut ledger, update(true, &all, &[]), 1)
            .created
            .len(),
        all.len()
    );
    let repeated = absorb(&mut ledger, update(true, &all, &[]), 2);
    assert_eq!(Ledger::count_changes(&repeated), 0);

    let node = NodeName::new("n7").unwrap();
    let mut report = Report {
        boot_id: "boot".into(),
        agent_instance: "one".into(),
        sequence: 1,
        cursor: None,
        complete: true,
        containers: vec![
            running_report(&all[7]),
            running_report(&all[107]),
            running_report(&all[8]),
        ],
    };
    let mut batch = Batch::default();
    let result = ledger.apply_report(&node_report(&node, 2, &report), &moment(3), &mut batch);
    let indices = result.map_err(|foreign| foreign.0).err();
    assert_eq!(
        indices,
        Some(vec![2]),
        "the index of the container of another node"
    );
    assert_eq!(
        Ledger::count_changes(&batch.rows),
        0,
        "no part of the report is applied"
    );
    report.containers.pop();
    let result = ledger.apply_report(&node_report(&node, 2, &report), &moment(3), &mut batch);
    assert!(result.is_ok());
    let changed: Vec<&str> = batch
        .rows
        .changed
        .keys()
        .map(AllocationId::as_str)
        .collect();
    assert_eq!(changed, ["alc_000007", "alc_000107"]);
    report.sequence = 2;
    let mut batch = Batch::default();
    let result = ledger.apply_report(&node_report(&node, 2, &report), &moment(4), &mut batch);
    assert!(result.is_ok());
    assert_eq!(Ledger::count_changes(&batch.rows), 0);
    report.sequence = 3;
    report.containers.clear();
    let mut batch = Batch::default();
    let result = ledger.apply_report(&node_report(&node, 4, &report), &moment(5), &mut batch);
    assert!(result.is_ok());
    assert_eq!(
        batch.rows.changed.len(),
        2,
        "only reported containers can be missing"
    );
}

#[test]
fn archived_containers_are_removed_from_the_working_set() {
    let mut ledger = empty_ledger();
    let all: Vec<AllocationEntry> = (0..4).map(allocation).collect();
    absorb(&mut ledger, update(true, &all, &[]), 1);
    let mut purged = all.clone();
    for entry in &mut purged {
        entry.vacate = Some(hayward_rm_scheduler_api::Vacate {
            reason: hayward_rm_scheduler_api::VacateReason::NodeLost,
            detail: String::new(),
            since: entry.granted_at,
            purge: true,
        });
    }
    let rows = absorb(&mut ledger, update(false, &purged, &[]), 2);
    assert!(
        rows.changed
            .values()
            .all(|container| container.launch.is_none()),
        "launch data is removed"
    );
    absorb(&mut ledger, update(true, &[], &[]), 3);
    assert!(ledger.containers.is_empty() && ledger.by_node.is_empty());
}

/// The end of a container on an unreachable node is awaited without a time limit (W7).
#[test]
fn a_container_on_an_unreachable_node_has_no_deadline() {
    let is_late = |ledger: &mut Ledger| {
        let holds = |ledger: &mut Ledger, monotonic_ms| {
            let moment = Moment {
                monotonic_ms,
                ..moment(9)
            };
            ledger
                .check_invariants(&moment)
                .findings
                .iter()
                .all(|it| it.finding.holds())
        };
        // The first check records the state; the second one is long after the time limit.
        holds(ledger, 10);
        !holds(ledger, 10_000_000)
    };
    let mut ledger = empty_ledger();
    let ordered = allocation(1);
    let unreachable = AllocationEntry {
        state: AllocationState::Unreachable,
        ..ordered.clone()
    };
    absorb(
        &mut ledger,
        update(true, std::slice::from_ref(&ordered), &[]),
        1,
    );
    assert!(
        is_late(&mut ledger),
        "the container was not reported in time"
    );
    absorb(
        &mut ledger,
        update(false, std::slice::from_ref(&unreachable), &[]),
        2,
    );
    assert!(!is_late(&mut ledger));
    absorb(&mut ledger, update(true, &[unreachable], &[]), 3);
    assert!(!is_late(&mut ledger));
    // The node is reachable again.
    absorb(&mut ledger, update(false, &[ordered], &[]), 4);
    assert!(is_late(&mut ledger));
}
