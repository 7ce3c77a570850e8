mod exclusive;

use std::collections::BTreeMap;

use hayward_container_manager_api::{ContainerReport, ContainerState, Goal, Report};
use hayward_container_manager_domain::Life;
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

fn empty() -> Ledger {
    let limits = crate::config::Settings::default().limits();
    Ledger::new(limits.into(), PlacementState::default())
}

fn absorb(ledger: &mut Ledger, update: Update<AllocationEntry>, revision: u64) -> Rows {
    let mut batch = Batch::default();
    ledger.absorb_allocations(update, &moment(revision), &mut batch);
    batch.rows
}

fn from_node(node: &NodeName, answers: u64, report: &Report) -> NodeReport {
    NodeReport {
        node: node.clone(),
        answers: Some(answers),
        report: report.clone(),
    }
}

fn lives(ledger: &Ledger) -> BTreeMap<AllocationId, Life> {
    ledger
        .containers
        .iter()
        .map(|(id, container)| (id.clone(), container.life.clone()))
        .collect()
}

#[test]
fn a_full_answer_and_a_delta_leave_the_same_containers() {
    let all: Vec<AllocationEntry> = (0..20).map(allocation).collect();
    let (mut by_delta, mut by_full) = (empty(), empty());
    for ledger in [&mut by_delta, &mut by_full] {
        absorb(ledger, update(true, &all[..15], &[]), 1);
    }
    let gone: Vec<&AllocationEntry> = all[..5].iter().collect();
    absorb(&mut by_delta, update(false, &all[15..], &gone), 2);
    absorb(&mut by_full, update(true, &all[5..], &[]), 2);
    assert_eq!(lives(&by_delta), lives(&by_full));
    assert!(lives(&by_full).values().filter(|life| life.orphan).count() == 5);
}

fn item(entry: &AllocationEntry) -> ContainerReport {
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
    let mut ledger = empty();
    let all: Vec<AllocationEntry> = (0..10_000).map(allocation).collect();
    assert_eq!(
        absorb(&mut ledger, update(true, &all, &[]), 1)
            .created
            .len(),
        all.len()
    );
    let again = absorb(&mut ledger, update(true, &all, &[]), 2);
    assert_eq!(Ledger::weight(&again), 0);

    let node = NodeName::new("n7").unwrap();
    let mut report = Report {
        boot_id: "boot".into(),
        agent_instance: "one".into(),
        sequence: 1,
        cursor: None,
        complete: true,
        containers: vec![item(&all[7]), item(&all[107]), item(&all[8])],
    };
    let mut batch = Batch::default();
    let taken = ledger.apply_report(&from_node(&node, 2, &report), &moment(3), &mut batch);
    let places = taken.map_err(|foreign| foreign.0).err();
    assert_eq!(places, Some(vec![2]), "the container of another node");
    assert_eq!(
        Ledger::weight(&batch.rows),
        0,
        "nothing of the report is applied"
    );
    report.containers.pop();
    let taken = ledger.apply_report(&from_node(&node, 2, &report), &moment(3), &mut batch);
    assert!(taken.is_ok());
    let changed: Vec<&str> = batch
        .rows
        .changed
        .keys()
        .map(AllocationId::as_str)
        .collect();
    assert_eq!(changed, ["alc_000007", "alc_000107"]);
    report.sequence = 2;
    let mut batch = Batch::default();
    let taken = ledger.apply_report(&from_node(&node, 2, &report), &moment(4), &mut batch);
    assert!(taken.is_ok());
    assert_eq!(Ledger::weight(&batch.rows), 0);
    report.sequence = 3;
    report.containers.clear();
    let mut batch = Batch::default();
    let taken = ledger.apply_report(&from_node(&node, 4, &report), &moment(5), &mut batch);
    assert!(taken.is_ok());
    assert_eq!(
        batch.rows.changed.len(),
        2,
        "only reported containers can be missing"
    );
}

#[test]
fn buried_containers_are_removed_from_the_working_set() {
    let mut ledger = empty();
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

/// Its end is awaited as long as it takes (W7).
#[test]
fn a_container_on_an_unreachable_node_has_no_deadline() {
    let is_late = |ledger: &mut Ledger| {
        let check = |ledger: &mut Ledger, monotonic_ms| {
            let at = Moment {
                monotonic_ms,
                ..moment(9)
            };
            ledger
                .report(&at)
                .findings
                .iter()
                .all(|it| it.finding.holds())
        };
        check(ledger, 10);
        !check(ledger, 10_000_000)
    };
    let mut ledger = empty();
    let ordered = allocation(1);
    let awaited = AllocationEntry {
        state: AllocationState::Unreachable,
        ..ordered.clone()
    };
    absorb(
        &mut ledger,
        update(true, std::slice::from_ref(&ordered), &[]),
        1,
    );
    assert!(is_late(&mut ledger), "no node reported it");
    absorb(
        &mut ledger,
        update(false, std::slice::from_ref(&awaited), &[]),
        2,
    );
    assert!(!is_late(&mut ledger));
    absorb(&mut ledger, update(true, &[awaited], &[]), 3);
    assert!(!is_late(&mut ledger));
    // The node is reachable again.
    absorb(&mut ledger, update(false, &[ordered], &[]), 4);
    assert!(is_late(&mut ledger));
}
