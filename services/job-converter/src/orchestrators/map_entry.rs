//! An entry in the map of an orchestrator: whether it requests processes, and the values of its
//! fields with their defaults.

use hayward_job_converter_api::orchestrators::{EntryKind, EntryState, ReportedState, WorkEntry};
use hayward_job_converter_domain::orchestrator_maps::MapEntry;
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{AllocationId, Size, WorkKind};

/// Default number of processes, for new and for known work (R-7.4).
const DEFAULT_PROCESSES: u64 = 10;
/// Default number of work items, from the specification.
const DEFAULT_ITEMS: u64 = 10;
/// Default memory of one process in GiB.
const DEFAULT_MEMORY_GB: u64 = 4;

/// A valid entry of a map. The methods apply the defaults of the specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The entry as the orchestrator sent it.
    pub fields: WorkEntry,
}

impl MapEntry for Entry {
    fn is_schedulable(&self) -> bool {
        let is_reservation = self.fields.kind == EntryKind::Reservation;
        match self.fields.state {
            EntryState::Waiting | EntryState::Assigned => true,
            EntryState::Initialising | EntryState::Running => !is_reservation,
            EntryState::Completing => {
                !is_reservation && self.processes().any(|(_, is_complete)| !is_complete)
            }
            EntryState::Completed => false,
        }
    }

    fn is_job(&self) -> bool {
        self.fields.kind == EntryKind::Job
    }

    fn processes(&self) -> impl Iterator<Item = (&AllocationId, bool)> {
        let reports = self.fields.processes.iter();
        reports.map(|(allocation, report)| (allocation, report.state.is_complete()))
    }
}

impl Entry {
    pub fn kind(&self) -> WorkKind {
        match self.fields.kind {
            EntryKind::Job => WorkKind::Job,
            EntryKind::Service | EntryKind::ManagedReservation => WorkKind::Service,
            EntryKind::Reservation => WorkKind::Reservation,
        }
    }

    /// Returns true if the map names a process in this allocation.
    pub fn names_running_process(&self, allocation: &AllocationId) -> bool {
        let report = self.fields.processes.get(allocation);
        report.is_some_and(|report| !report.state.is_complete())
    }

    /// Returns the allocations whose process is initialized.
    pub fn initialised_allocations(&self) -> impl Iterator<Item = &AllocationId> {
        let reports = self.fields.processes.iter();
        let is_up = |state| matches!(state, ReportedState::Running | ReportedState::Stopping);
        let running = reports.filter(move |(_, report)| is_up(report.state));
        running.map(|(allocation, _)| allocation)
    }

    pub fn size(&self) -> Size {
        let entry = &self.fields;
        if let Some(size) = &entry.size {
            return size.clone();
        }
        match (entry.memory_gb.filter(|gb| *gb > 0), entry.kind) {
            (Some(gb), _) => Size::memory(gb.saturating_mul(GIB)),
            (None, EntryKind::Reservation) => Size::default(),
            (None, _) => Size::memory(DEFAULT_MEMORY_GB * GIB),
        }
    }

    pub fn threads(&self) -> u32 {
        self.fields
            .threads
            .filter(|threads| *threads > 0)
            .unwrap_or(1)
    }

    /// Returns the maximum number of processes. Work that is no job has one process.
    pub fn max_processes(&self) -> u64 {
        match self.fields.kind {
            EntryKind::Job => self.fields.max_processes.unwrap_or(DEFAULT_PROCESSES),
            _ => 1,
        }
    }

    /// Returns the number of unfinished work items.
    pub fn remaining_items(&self) -> u64 {
        let entry = &self.fields;
        let total = entry.work_items.unwrap_or(DEFAULT_ITEMS);
        let done_items = entry.items_done.saturating_add(entry.items_failed);
        match entry.kind {
            EntryKind::Job => total.saturating_sub(done_items),
            _ => 1,
        }
    }

    /// Returns true if the job starts no further items: its map says so, or none is left (R-7.7).
    pub fn is_completing(&self) -> bool {
        self.fields.state == EntryState::Completing || self.remaining_items() == 0
    }

    /// Returns true if the job has not started.
    pub fn is_starting(&self) -> bool {
        let state = self.fields.state;
        self.is_job() && !matches!(state, EntryState::Running | EntryState::Completing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Entry {
        Entry {
            fields: serde_json::from_str(text).unwrap(),
        }
    }

    /// A completing job requests processes while one is not complete (R-7.2).
    #[test]
    fn kind_and_state_decide_whether_an_entry_requests_processes() {
        let requests_processes = |kind: &str, state: &str| {
            let text = format!(r#"{{"kind":"{kind}","state":"{state}","owner":"ada"}}"#);
            entry(&text).is_schedulable()
        };
        for state in ["waiting", "assigned"] {
            assert!(
                requests_processes("job", state)
                    && requests_processes("service", state)
                    && requests_processes("reservation", state)
            );
        }
        for state in ["initialising", "running"] {
            assert!(
                requests_processes("job", state)
                    && requests_processes("managed_reservation", state)
            );
            assert!(!requests_processes("reservation", state));
        }
        assert!(
            !requests_processes("job", "completed") && !requests_processes("job", "completing")
        );
        let completing = r#"{"kind":"job","state":"completing","owner":"ada",
            "processes":{"alc_1":{"state":"stopping"},"alc_2":{"state":"stopped"}}}"#;
        let completing = entry(completing);
        assert!(completing.is_schedulable() && completing.is_completing());
        assert!(
            completing.names_running_process(&"alc_1".parse().unwrap())
                && !completing.names_running_process(&"alc_2".parse().unwrap())
        );
    }

    /// Each field has the same default in every state (R-7.4).
    #[test]
    fn a_missing_field_has_one_default() {
        let job = entry(r#"{"kind":"job","state":"waiting","owner":"ada","memory_gb":0}"#);
        assert_eq!(
            (job.max_processes(), job.remaining_items(), job.threads()),
            (10, 10, 1)
        );
        assert_eq!(job.size(), Size::memory(4 * GIB));
        let running = Entry {
            fields: WorkEntry {
                state: EntryState::Running,
                ..job.fields
            },
        };
        assert_eq!(running.max_processes(), 10);
        let service = r#"{"kind":"service","state":"running","owner":"ada","max_processes":7}"#;
        assert_eq!(entry(service).max_processes(), 1);
        let reservation = entry(r#"{"kind":"reservation","state":"waiting","owner":"ada"}"#);
        assert_eq!(reservation.size(), Size::default());
    }
}
