//! Recovers the containers at the start of the agent, from the journal and from what runs on the
//! node.

use std::collections::BTreeMap;

use hayward_node_agent_domain::{
    ContainerHistory, Doubt, Evidence, JournalState, Phase, Record, RecoveredState,
    journal_recovery,
};
use hayward_vocabulary::AllocationId;

use super::containers::KnownContainer;
use super::{Agent, Traces};
use crate::output_tail;
use crate::runtime::FoundContainer;

impl Agent {
    pub(super) fn recover(
        &mut self,
        journal_state: JournalState,
        mut found: BTreeMap<AllocationId, FoundContainer>,
    ) -> anyhow::Result<()> {
        let mut histories = journal_state.containers;
        self.add_unrecorded(&mut histories, &found);
        let mut records = Vec::new();
        for (id, mut history) in histories {
            let found = found
                .remove(&id)
                .filter(|found| found.incarnation == history.incarnation);
            if let Some(found) = &found {
                history.pid = history.pid.or(found.pid);
                history.started_at = history.started_at.or(found.started_at);
            }
            let evidence = found.map_or(Evidence::NoTrace, |found| found.evidence);
            let state = journal_recovery::recovered_state(&history, evidence, &self.boot_id);
            let ContainerHistory {
                incarnation, epoch, ..
            } = history;
            let mut known = KnownContainer::new(incarnation, epoch, Phase::Launching);
            (known.pid, known.started_at) = (history.pid, history.started_at);
            match state {
                RecoveredState::Live if history.pid.is_some() => {
                    known.actual.phase = Phase::Running;
                }
                RecoveredState::Live => {}
                RecoveredState::Ending => known.actual.phase = Phase::Stopping,
                RecoveredState::Ended(mut exit) => {
                    known.actual.phase = Phase::Ended;
                    if history.exit.is_none() {
                        output_tail::add_to_exit(self.runtime.as_ref(), &id, &mut exit);
                        records.push(Record::Ended {
                            id: id.clone(),
                            incarnation,
                            epoch,
                            exit: exit.clone(),
                        });
                    }
                    known.exit = Some(exit);
                }
            }
            self.containers.insert(id, known);
        }
        self.journal.lock().append(&records, true)?;
        Ok(())
    }

    /// Adds containers that are on the node and not in the journal.
    fn add_unrecorded(
        &mut self,
        histories: &mut BTreeMap<AllocationId, ContainerHistory>,
        found: &BTreeMap<AllocationId, FoundContainer>,
    ) {
        for (id, found) in found {
            let known_incarnation = histories.get(id).map(|history| history.incarnation);
            if known_incarnation.is_some_and(|known| known >= found.incarnation) {
                continue;
            }
            // The node has a container without a record, so other records may be lost too (F30).
            if self.doubt.is_none() {
                self.doubt = Some(Doubt::Damaged);
            }
            Traces::count_orphan();
            let boot_id = found.boot_id.clone();
            let history = ContainerHistory {
                boot_id: boot_id.unwrap_or_else(|| self.boot_id.clone()),
                ..ContainerHistory::new(found.incarnation, found.epoch)
            };
            histories.insert(id.clone(), history);
        }
    }
}
