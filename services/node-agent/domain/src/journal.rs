//! What a journal proves.
//!
//! An intent is on disk before its program starts (I3) and an end before it is reported (I6). After
//! a crash the records are replayed into one [`Story`] per container; what the machine still shows
//! of it is its [`Trace`]; both together give the [`Verdict`]. Replaying is idempotent, and an end
//! absorbs: nothing that is told later changes it.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, Exit, ExitCause, Timestamp};
use serde::{Deserialize, Serialize};

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    Intent {
        id: AllocationId,
        incarnation: u64,
        epoch: u64,
        boot_id: String,
    },
    Started {
        id: AllocationId,
        incarnation: u64,
        pid: u32,
        at: Option<Timestamp>,
    },
    Ended {
        id: AllocationId,
        incarnation: u64,
        epoch: u64,
        exit: Exit,
    },
    Forgotten {
        id: AllocationId,
    },
    /// The first line: which boot this journal was opened under. Without it there is no journal.
    Opened {
        boot_id: String,
    },
    /// Newest position in the desired set on whose word anything was done (I7).
    Seen {
        cursor: String,
    },
}

/// What the journal says of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    pub incarnation: u64,
    pub epoch: u64,
    /// Boot under which it was to start; empty when it never was.
    pub boot_id: String,
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
    pub exit: Option<Exit>,
}

/// All stories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Past {
    /// Boot it was opened under last; absent in a journal that is new, or lost.
    pub boot_id: Option<String>,
    pub seen: Option<String>,
    pub stories: BTreeMap<AllocationId, Story>,
}

impl Past {
    pub fn replay(records: impl IntoIterator<Item = Record>) -> Self {
        let mut past = Self::default();
        for record in records {
            past.tell(record);
        }
        past
    }

    pub fn tell(&mut self, record: Record) {
        match record {
            Record::Intent {
                id,
                incarnation,
                epoch,
                boot_id,
            } => {
                if self
                    .stories
                    .get(&id)
                    .is_some_and(|told| told.incarnation >= incarnation)
                {
                    return;
                }
                self.stories.insert(
                    id,
                    Story {
                        boot_id,
                        ..Story::new(incarnation, epoch)
                    },
                );
            }
            Record::Started {
                id,
                incarnation,
                pid,
                at,
            } => {
                if let Some(story) = self.stories.get_mut(&id)
                    && story.incarnation == incarnation
                    && story.exit.is_none()
                {
                    story.pid = Some(pid);
                    story.started_at = at;
                }
            }
            Record::Ended {
                id,
                incarnation,
                epoch,
                exit,
            } => {
                let story = self
                    .stories
                    .entry(id)
                    .or_insert_with(|| Story::new(incarnation, epoch));
                if incarnation > story.incarnation {
                    *story = Story::new(incarnation, epoch);
                }
                if story.incarnation == incarnation && story.exit.is_none() {
                    story.exit = Some(exit);
                }
            }
            Record::Forgotten { id } => {
                self.stories.remove(&id);
            }
            Record::Opened { boot_id } => self.boot_id = Some(boot_id),
            Record::Seen { cursor } => self.seen = Some(cursor),
        }
    }

    /// The shortest journal that tells the same.
    pub fn compacted(&self) -> Vec<Record> {
        let boot_id = self.boot_id.clone();
        let cursor = self.seen.clone();
        let mut records: Vec<Record> = boot_id
            .map(|boot_id| Record::Opened { boot_id })
            .into_iter()
            .chain(cursor.map(|cursor| Record::Seen { cursor }))
            .collect();
        for (id, story) in &self.stories {
            let Story {
                incarnation, epoch, ..
            } = *story;
            if !story.boot_id.is_empty() {
                let boot_id = story.boot_id.clone();
                records.push(Record::Intent {
                    id: id.clone(),
                    incarnation,
                    epoch,
                    boot_id,
                });
            }
            if let Some(pid) = story.pid {
                let at = story.started_at;
                records.push(Record::Started {
                    id: id.clone(),
                    incarnation,
                    pid,
                    at,
                });
            }
            if let Some(exit) = story.exit.clone() {
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

impl Story {
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
}

/// What the machine shows of a container whose agent was away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trace {
    /// Its supervisor lives.
    Alive,
    /// Its supervisor left the exit behind.
    Exited(Exit),
    /// The program was started; its supervisor is gone without a word.
    Lost,
    /// A supervisor began, and is gone; nobody knows whether the program started.
    Begun,
    /// It is alive, and its supervisor or its folder is not there any more: it is being ended.
    Orphan,
    /// No supervisor ever began, and none can begin any more.
    Untouched,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Live,
    /// It lives and is being ended; how that went is told later.
    Ending,
    Ended(Exit),
}

/// What is proven of a container after the agent was away. `boot_id` is that of the machine now.
pub fn judge(story: &Story, trace: Trace, boot_id: &str) -> Verdict {
    if let Some(exit) = &story.exit {
        return Verdict::Ended(exit.clone());
    }
    let rebooted = story.boot_id != boot_id;
    let (cause, message) = match trace {
        Trace::Exited(exit) => return Verdict::Ended(exit),
        Trace::Orphan => return Verdict::Ending,
        Trace::Alive if !rebooted => return Verdict::Live,
        Trace::Lost | Trace::Alive if rebooted => {
            (ExitCause::Node, "the machine was restarted while it ran")
        }
        // The journal knows of the start even if the machine forgot.
        _ if rebooted && story.pid.is_some() => {
            (ExitCause::Node, "the machine was restarted while it ran")
        }
        // What the last boot wrote may not have reached the disk: absence proves nothing.
        _ if rebooted => (
            ExitCause::LaunchUnknown,
            "the machine was restarted while it was being launched",
        ),
        Trace::Lost | Trace::Alive => (ExitCause::Node, "its supervisor was lost"),
        Trace::Begun => (
            ExitCause::LaunchUnknown,
            "its supervisor was lost during the launch",
        ),
        Trace::Untouched if story.pid.is_some() => {
            (ExitCause::Node, "it ran, and its folder was lost")
        }
        Trace::Untouched => (ExitCause::Node, "the agent ended before it was launched"),
    };
    Verdict::Ended(Exit::of(cause, message))
}

/// Why it cannot be proven of unknown orders that they were never obeyed (I3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// There is no journal: the node is new, or its disk is.
    Lost,
    /// Records are missing in the middle, or the machine shows what no record tells of.
    Damaged,
    /// The machine was restarted: a disk that was put back looks the same.
    Restarted,
    /// The orders are of another history than those obeyed before.
    OtherHistory,
}

impl Doubt {
    /// How a container ends that may have run before.
    pub fn exit(self) -> Exit {
        let why = match self {
            Self::Lost => "the journal of its node was lost",
            Self::Damaged => "the journal of its node lost records",
            Self::Restarted => "its node was restarted since it was ordered",
            Self::OtherHistory => "its node has obeyed orders of another history",
        };
        Exit::of(
            ExitCause::LaunchUnknown,
            format!("{why}, so it may have been started before"),
        )
    }
}

/// What a journal as it was opened leaves in doubt. `damaged` is what its reader says of it.
pub fn doubt(past: &Past, damaged: bool, boot_id: &str) -> Option<Doubt> {
    match &past.boot_id {
        _ if damaged => Some(Doubt::Damaged),
        None => Some(Doubt::Lost),
        Some(opened) if opened != boot_id => Some(Doubt::Restarted),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests;
