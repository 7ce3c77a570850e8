//! Recovers the state of containers from the journal after a crash.
//!
//! An intent is on disk before its program starts, and an end before it is reported (I3). After a
//! crash the records are replayed into one [`ContainerHistory`] per container. [`Evidence`] is what
//! the agent finds on the node. Both together give the [`RecoveredState`]. Replaying is idempotent,
//! and the first end of a container is final.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, Exit, ExitCause, Timestamp};
use serde::{Deserialize, Serialize};

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The container is about to be started.
    Intent {
        id: AllocationId,
        incarnation: u64,
        epoch: u64,
        boot_id: String,
    },
    /// The program of the container runs.
    Started {
        id: AllocationId,
        incarnation: u64,
        pid: u32,
        at: Option<Timestamp>,
    },
    /// The container has ended, or will never start.
    Ended {
        id: AllocationId,
        incarnation: u64,
        epoch: u64,
        exit: Exit,
    },
    /// The container and its data are about to be removed.
    Forgotten { id: AllocationId },
    /// First line, with the boot under which the journal was opened. A journal without this
    /// line counts as lost.
    Opened { boot_id: String },
    /// Newest position of the desired set that was acted on (I7).
    Seen { cursor: String },
}

/// The records of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerHistory {
    pub incarnation: u64,
    pub epoch: u64,
    /// Boot under which the container was ordered to start. Empty if it never was.
    pub boot_id: String,
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
    pub exit: Option<Exit>,
}

/// State after all records of the journal were replayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalState {
    /// Boot under which the journal was last opened. `None` if the journal is new or lost.
    pub boot_id: Option<String>,
    pub cursor: Option<String>,
    pub containers: BTreeMap<AllocationId, ContainerHistory>,
}

impl JournalState {
    pub fn replay(records: impl IntoIterator<Item = Record>) -> Self {
        let mut state = Self::default();
        for record in records {
            state.apply(record);
        }
        state
    }

    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Intent {
                id,
                incarnation,
                epoch,
                boot_id,
            } => {
                if self
                    .containers
                    .get(&id)
                    .is_some_and(|history| history.incarnation >= incarnation)
                {
                    return;
                }
                self.containers.insert(
                    id,
                    ContainerHistory {
                        boot_id,
                        ..ContainerHistory::new(incarnation, epoch)
                    },
                );
            }
            Record::Started {
                id,
                incarnation,
                pid,
                at,
            } => {
                if let Some(history) = self.containers.get_mut(&id)
                    && history.incarnation == incarnation
                    && history.exit.is_none()
                {
                    history.pid = Some(pid);
                    history.started_at = at;
                }
            }
            Record::Ended {
                id,
                incarnation,
                epoch,
                exit,
            } => {
                let history = self.containers.entry(id);
                let history = history.or_insert_with(|| ContainerHistory::new(incarnation, epoch));
                history.end(incarnation, epoch, exit);
            }
            Record::Forgotten { id } => {
                self.containers.remove(&id);
            }
            Record::Opened { boot_id } => self.boot_id = Some(boot_id),
            Record::Seen { cursor } => self.cursor = Some(cursor),
        }
    }

    /// Returns the shortest journal that gives the same state.
    pub fn to_compact_records(&self) -> Vec<Record> {
        let boot_id = self.boot_id.clone();
        let cursor = self.cursor.clone();
        let mut records: Vec<Record> = boot_id
            .map(|boot_id| Record::Opened { boot_id })
            .into_iter()
            .chain(cursor.map(|cursor| Record::Seen { cursor }))
            .collect();
        for (id, history) in &self.containers {
            let ContainerHistory {
                incarnation, epoch, ..
            } = *history;
            if !history.boot_id.is_empty() {
                let boot_id = history.boot_id.clone();
                records.push(Record::Intent {
                    id: id.clone(),
                    incarnation,
                    epoch,
                    boot_id,
                });
            }
            if let Some(pid) = history.pid {
                let at = history.started_at;
                records.push(Record::Started {
                    id: id.clone(),
                    incarnation,
                    pid,
                    at,
                });
            }
            if let Some(exit) = history.exit.clone() {
                records.push(Record::Ended {
                    id: id.clone(),
                    incarnation,
                    epoch,
                    exit,
                });
            }
        }
        records
    }
}

impl ContainerHistory {
    pub fn new(incarnation: u64, epoch: u64) -> Self {
        let boot_id = String::new();
        Self {
            incarnation,
            epoch,
            boot_id,
            pid: None,
            started_at: None,
            exit: None,
        }
    }

    /// Records an end. The first end of an incarnation is final.
    fn end(&mut self, incarnation: u64, epoch: u64, exit: Exit) {
        if incarnation > self.incarnation {
            *self = Self::new(incarnation, epoch);
        }
        if self.incarnation == incarnation && self.exit.is_none() {
            self.exit = Some(exit);
        }
    }
}

/// State of a container on the node after a restart of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// The supervisor of the container is alive.
    Alive,
    /// The supervisor has ended and left the exit of the container.
    Exited(Exit),
    /// The program was started, but its supervisor is gone and left no exit.
    Lost,
    /// A supervisor began and is gone. The program may have started.
    LaunchInterrupted,
    /// Processes are alive without a supervisor or folder. They are being ended.
    Orphan,
    /// No supervisor ever began, and none can begin any more.
    NoTrace,
}

/// State of a container after a restart of the agent, by its history and the evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveredState {
    /// The container is launching or running.
    Live,
    /// The container is alive and being ended. Its exit is reported later.
    Ending,
    Ended(Exit),
}

/// Returns the state of a container after a restart of the agent. `boot_id` is the current boot.
pub fn recovered_state(
    history: &ContainerHistory,
    evidence: Evidence,
    boot_id: &str,
) -> RecoveredState {
    if let Some(exit) = &history.exit {
        return RecoveredState::Ended(exit.clone());
    }
    let rebooted = history.boot_id != boot_id;
    let (cause, message) = match evidence {
        Evidence::Exited(exit) => return RecoveredState::Ended(exit),
        Evidence::Orphan => return RecoveredState::Ending,
        Evidence::Alive if !rebooted => return RecoveredState::Live,
        Evidence::Lost | Evidence::Alive if rebooted => {
            (ExitCause::Node, "the machine was restarted while it ran")
        }
        // The journal proves the start even if the node shows no trace of it.
        _ if rebooted && history.pid.is_some() => {
            (ExitCause::Node, "the machine was restarted while it ran")
        }
        // The absence of a trace proves nothing, because writes before the reboot may be lost.
        _ if rebooted => (
            ExitCause::LaunchUnknown,
            "the machine was restarted while it was being launched",
        ),
        Evidence::Lost | Evidence::Alive => (ExitCause::Node, "its supervisor was lost"),
        Evidence::LaunchInterrupted => (
            ExitCause::LaunchUnknown,
            "its supervisor was lost during the launch",
        ),
        Evidence::NoTrace if history.pid.is_some() => {
            (ExitCause::Node, "it ran, and its folder was lost")
        }
        Evidence::NoTrace => (ExitCause::Node, "the agent ended before it was launched"),
    };
    RecoveredState::Ended(Exit::of(cause, message))
}

/// Why the journal does not prove that a desired container without a record was never started. Such
/// a container is not started, because it could then run twice (I3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// There is no journal, because the node or its disk is new.
    Lost,
    /// Records are missing in the middle, or the node has containers without a record.
    Damaged,
    /// The node was rebooted. The journal may be an older copy from a restored disk.
    Restarted,
    /// The desired set is of another history of container-manager than the last one, so ids and
    /// incarnations cannot be compared with it.
    OtherHistory,
}

impl Doubt {
    /// Returns the exit of a container that may have run before.
    pub fn to_exit(self) -> Exit {
        let reason = match self {
            Self::Lost => "the journal of its node was lost",
            Self::Damaged => "the journal of its node lost records",
            Self::Restarted => "its node was restarted since it was ordered",
            Self::OtherHistory => "its node has obeyed orders of another history",
        };
        Exit::of(
            ExitCause::LaunchUnknown,
            format!("{reason}, so it may have been started before"),
        )
    }
}

/// Returns the doubt that an opened journal leaves. `damaged` means that records are missing in the
/// middle.
pub fn journal_doubt(state: &JournalState, damaged: bool, boot_id: &str) -> Option<Doubt> {
    match &state.boot_id {
        _ if damaged => Some(Doubt::Damaged),
        None => Some(Doubt::Lost),
        Some(opened) if opened != boot_id => Some(Doubt::Restarted),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests;
