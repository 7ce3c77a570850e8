//! What an agent that begins knows: its journal and the machine, put together.

use std::collections::BTreeMap;

use hayward_node_agent_domain::{Doubt, Past, Phase, Record, Story, Trace, Verdict, journal};
use hayward_vocabulary::AllocationId;

use super::containers::Known;
use super::{Agent, Lives};
use crate::output_tail;
use crate::runtime::Found;

impl Agent {
    /// Puts journal and machine together.
    pub(super) fn remember(
        &mut self,
        past: Past,
        mut found: BTreeMap<AllocationId, Found>,
    ) -> anyhow::Result<()> {
        let mut stories = past.stories;
        for (id, found) in &found {
            let told = stories.get(id).map(|story| story.incarnation);
            if told.is_some_and(|told| told >= found.incarnation) {
                continue;
            }
            // The journal forgot it, and who knows what else (F30); the machine remembers.
            if self.doubt.is_none() {
                self.doubt = Some(Doubt::Damaged);
            }
            Lives::orphan();
            let boot_id = found.boot_id.clone();
            let story = Story {
                boot_id: boot_id.unwrap_or_else(|| self.boot_id.clone()),
                ..Story::new(found.incarnation, found.epoch)
            };
            stories.insert(id.clone(), story);
        }
        let mut records = Vec::new();
        for (id, mut story) in stories {
            let found = found
                .remove(&id)
                .filter(|found| found.incarnation == story.incarnation);
            if let Some(found) = &found {
                story.pid = story.pid.or(found.pid);
                story.started_at = story.started_at.or(found.started_at);
            }
            let trace = found.map_or(Trace::Untouched, |found| found.trace);
            let verdict = journal::judge(&story, trace, &self.boot_id);
            let Story {
                incarnation, epoch, ..
            } = story;
            let mut known = Known::new(incarnation, epoch, Phase::Launching);
            (known.pid, known.started_at) = (story.pid, story.started_at);
            match verdict {
                Verdict::Live if story.pid.is_some() => known.actual.phase = Phase::Running,
                Verdict::Live => {}
                Verdict::Ending => known.actual.phase = Phase::Stopping,
                Verdict::Ended(mut exit) => {
                    known.actual.phase = Phase::Ended;
                    if story.exit.is_none() {
                        output_tail::add(self.runtime.as_ref(), &id, &mut exit);
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
            self.known.insert(id, known);
        }
        self.journal.lock().append(&records, true)?;
        Ok(())
    }
}
