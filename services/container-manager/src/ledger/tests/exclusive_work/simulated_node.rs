//! A simulated node with its agent: it follows its desired set and reports its processes.

use std::collections::VecDeque;

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessState {
    Running,
    Stopping,
    Ended,
}

/// One container in the journal of the agent.
struct JournalEntry {
    incarnation: u64,
    process: ProcessState,
}

/// A report on its way to container-manager.
pub struct ReportInTransit {
    pub observed_revision: Option<u64>,
    pub report: Report,
}

#[derive(Default)]
pub struct SimulatedNode {
    pub desired: BTreeMap<AllocationId, Goal>,
    /// Revision of the desired set.
    pub observed_revision: Option<u64>,
    journal: BTreeMap<AllocationId, JournalEntry>,
    /// Number of the last report.
    sequence: u64,
    pub in_transit: VecDeque<ReportInTransit>,
    pub is_partitioned: bool,
    pub has_lease: bool,
}

impl SimulatedNode {
    pub fn new() -> Self {
        Self {
            has_lease: true,
            ..Self::default()
        }
    }

    /// Starts and stops processes according to the desired set.
    pub fn apply_desired_set(&mut self, incarnation_of: impl Fn(&AllocationId) -> u64) {
        for (id, goal) in &self.desired {
            let new_entry = |process| JournalEntry {
                incarnation: incarnation_of(id),
                process,
            };
            match (goal, self.journal.get_mut(id)) {
                (Goal::Run, None) if self.has_lease => {
                    self.journal
                        .insert(id.clone(), new_entry(ProcessState::Running));
                }
                (Goal::Stop, None) => {
                    self.journal
                        .insert(id.clone(), new_entry(ProcessState::Ended));
                }
                (Goal::Stop, Some(entry)) if entry.process == ProcessState::Running => {
                    entry.process = ProcessState::Stopping;
                }
                _ => {}
            }
        }
        let desired = &self.desired;
        self.journal
            .retain(|id, entry| entry.process != ProcessState::Ended || desired.contains_key(id));
        for (id, entry) in &mut self.journal {
            if !desired.contains_key(id) && entry.process == ProcessState::Running {
                entry.process = ProcessState::Stopping;
            }
        }
    }

    /// Ends one process without an order.
    pub fn end_process(&mut self, id: &AllocationId) {
        if let Some(entry) = self.journal.get_mut(id) {
            entry.process = ProcessState::Ended;
        }
    }

    pub fn end_stopping_processes(&mut self) {
        for entry in self.journal.values_mut() {
            if entry.process == ProcessState::Stopping {
                entry.process = ProcessState::Ended;
            }
        }
    }

    /// Sends a report of all containers. It is delivered later.
    pub fn send_report(&mut self) {
        self.sequence += 1;
        let containers = self.journal.iter().map(|(id, entry)| {
            let state = match entry.process {
                ProcessState::Running => ContainerState::Running,
                ProcessState::Stopping => ContainerState::Stopping,
                ProcessState::Ended => ContainerState::Ended,
            };
            ContainerReport {
                id: id.clone(),
                incarnation: entry.incarnation,
                state,
                pid: None,
                started_at: None,
                exit: None,
                reason: None,
            }
        });
        let report = Report {
            boot_id: "boot".into(),
            agent_instance: "one".into(),
            sequence: self.sequence,
            cursor: None,
            complete: true,
            containers: containers.collect(),
        };
        self.in_transit.push_back(ReportInTransit {
            observed_revision: self.observed_revision,
            report,
        });
    }

    /// Ends all processes, because the lease has expired. Containers that have not started never
    /// start (decision 0014).
    pub fn expire_lease(&mut self, incarnation_of: impl Fn(&AllocationId) -> u64) {
        self.has_lease = false;
        for id in self.desired.keys() {
            let never_started = || JournalEntry {
                incarnation: incarnation_of(id),
                process: ProcessState::Ended,
            };
            self.journal.entry(id.clone()).or_insert_with(never_started);
        }
        for entry in self.journal.values_mut() {
            entry.process = ProcessState::Ended;
        }
    }

    /// Returns the number of processes that have not ended.
    pub fn live_count(&self) -> usize {
        let entries = self.journal.values();
        entries
            .filter(|entry| entry.process != ProcessState::Ended)
            .count()
    }
}
