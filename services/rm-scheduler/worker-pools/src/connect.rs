//! An owner connects and hands over its list of workers (section 5).

use std::collections::BTreeSet;

use hayward_vocabulary::AllocationId;

use crate::commands::{Connected, Refusal};
use crate::pool::{Mode, Pool};
use crate::time::Now;
use crate::worker::State;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connect {
    pub epoch: u64,
    pub address: String,
    /// All workers that are registered with this owner.
    pub workers: BTreeSet<AllocationId>,
    /// Reconnect only if this is still the connection (5.6).
    pub connection: Option<u64>,
}

impl Pool {
    /// Binds the owner in place of whichever was bound before. Its list is the truth; what the list
    /// leaves out is kept and counted for a while, because a new owner begins with an empty one.
    ///
    /// # Errors
    /// When the pool is stopped, a later owner is known, or a newer connection was made.
    pub fn connect(&mut self, asked: &Connect, now: Now) -> Result<Connected, Refusal> {
        if self.stopped.is_some() {
            return Err(Refusal::Stopped);
        }
        let (given, known) = (asked.epoch, self.owner.epoch);
        if given < known {
            return Err(Refusal::StaleEpoch { given, known });
        }
        let known = self.owner.connection;
        if let Some(given) = asked.connection.filter(|given| *given != known) {
            return Err(Refusal::StaleConnection { given, known });
        }
        if asked.epoch > self.owner.epoch {
            // A new owner has said of nobody that it is idle.
            for worker in self.workers.values_mut() {
                worker.idle = false;
            }
        }
        self.owner.epoch = asked.epoch;
        self.owner.address.clone_from(&asked.address);
        self.owner.connection += 1;
        self.owner.bound = true;
        self.owner.heard_ms = now.monotonic_ms;
        let mut answer = Connected {
            connection: self.owner.connection,
            accepted: Vec::new(),
            foreign: Vec::new(),
            returning: Vec::new(),
            event_seq: self.event_seq,
        };
        self.drop_strangers(&asked.workers);
        for id in &asked.workers {
            self.take_over(id, &mut answer);
        }
        self.start_deadlines(&asked.workers, now);
        self.request_missing(now);
        Ok(answer)
    }

    /// What was never ours is known from the list alone; in standalone that is everything.
    fn drop_strangers(&mut self, list: &BTreeSet<AllocationId>) {
        let standalone = self.mode == Mode::Standalone;
        self.workers.retain(|id, worker| {
            list.contains(id) || !(standalone || worker.state == State::Foreign)
        });
    }

    /// 5.3, for one worker of the list.
    fn take_over(&mut self, id: &AllocationId, answer: &mut Connected) {
        let epoch = self.owner.epoch;
        if self.mode == Mode::Standalone {
            let list = if self.accept(id) {
                &mut answer.accepted
            } else {
                &mut answer.foreign
            };
            list.push(id.clone());
            return;
        }
        match self.workers.get_mut(id) {
            Some(worker) if worker.is_held() => {
                worker.started(epoch);
                answer.accepted.push(id.clone());
            }
            Some(worker) => {
                worker.reported_by = Some(epoch);
                let going = worker.state == State::Returning;
                let list = if going {
                    &mut answer.returning
                } else {
                    &mut answer.foreign
                };
                list.push(id.clone());
            }
            None => {
                self.meet_stranger(id);
                answer.foreign.push(id.clone());
            }
        }
    }

    /// From now on somebody can report workers, so from now on they can be late.
    fn start_deadlines(&mut self, list: &BTreeSet<AllocationId>, now: Now) {
        for (id, worker) in &mut self.workers {
            let wait = match worker.state {
                State::Started if !list.contains(id) => self.rules.reregister_grace_ms,
                State::Launching => self.rules.register_deadline_ms,
                _ => continue,
            };
            worker.deadline.get_or_insert(now.monotonic_ms + wait);
        }
    }
}
