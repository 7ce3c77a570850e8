//! The command that connects an owner: the owner lists its workers and replaces any earlier owner.

use std::collections::BTreeSet;

use hayward_vocabulary::AllocationId;

use crate::commands::{ConnectResult, Refusal};
use crate::pool::{Mode, Pool};
use crate::time::Now;
use crate::worker::State;

/// Request of an owner to connect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connect {
    pub epoch: u64,
    pub address: String,
    /// All workers registered with this owner.
    pub workers: BTreeSet<AllocationId>,
    /// The call is refused unless this is still the current connection. `None`: no such condition.
    pub connection: Option<u64>,
}

impl Pool {
    /// Binds the owner and replaces any earlier one. The list of the owner is authoritative.
    /// Workers missing from the list still count for a while, because a new owner begins with an
    /// empty list.
    ///
    /// # Errors
    /// When the pool is stopped, or a later owner or connection is known.
    pub fn connect(&mut self, request: &Connect, now: Now) -> Result<ConnectResult, Refusal> {
        if self.stopped.is_some() {
            return Err(Refusal::Stopped);
        }
        let (received, current) = (request.epoch, self.owner.epoch);
        if received < current {
            return Err(Refusal::StaleEpoch { received, current });
        }
        let current = self.owner.connection;
        if let Some(received) = request.connection.filter(|received| *received != current) {
            return Err(Refusal::StaleConnection { received, current });
        }
        if request.epoch > self.owner.epoch {
            // A new owner has not reported any idle worker.
            for worker in self.workers.values_mut() {
                worker.idle = false;
            }
        }
        self.owner.epoch = request.epoch;
        self.owner.address.clone_from(&request.address);
        self.owner.connection += 1;
        self.owner.bound = true;
        self.owner.last_call_ms = now.monotonic_ms;
        let mut result = ConnectResult {
            connection: self.owner.connection,
            accepted: Vec::new(),
            foreign: Vec::new(),
            returning: Vec::new(),
            event_seq: self.event_seq,
        };
        self.drop_unlisted_foreign(&request.workers);
        for id in &request.workers {
            self.take_over(id, &mut result);
        }
        self.start_deadlines(&request.workers, now);
        self.request_missing(now);
        Ok(result)
    }

    /// Removes foreign workers that the list does not name. In a standalone pool all workers are
    /// foreign.
    fn drop_unlisted_foreign(&mut self, list: &BTreeSet<AllocationId>) {
        let is_standalone = self.mode == Mode::Standalone;
        self.workers.retain(|id, worker| {
            list.contains(id) || !(is_standalone || worker.state == State::Foreign)
        });
    }

    /// Takes over one listed worker.
    fn take_over(&mut self, id: &AllocationId, result: &mut ConnectResult) {
        let epoch = self.owner.epoch;
        if self.mode == Mode::Standalone {
            let list = if self.accept(id) {
                &mut result.accepted
            } else {
                &mut result.foreign
            };
            list.push(id.clone());
            return;
        }
        match self.workers.get_mut(id) {
            Some(worker) if worker.is_held() => {
                worker.mark_started(epoch);
                result.accepted.push(id.clone());
            }
            Some(worker) => {
                worker.reported_by = Some(epoch);
                let is_returning = worker.state == State::Returning;
                let list = if is_returning {
                    &mut result.returning
                } else {
                    &mut result.foreign
                };
                list.push(id.clone());
            }
            None => {
                self.report_unknown_worker(id);
                result.foreign.push(id.clone());
            }
        }
    }

    /// Starts the deadlines for registration, because workers can be reported from now on.
    fn start_deadlines(&mut self, list: &BTreeSet<AllocationId>, now: Now) {
        for (id, worker) in &mut self.workers {
            let timeout_ms = match worker.state {
                State::Started if !list.contains(id) => self.rules.reregister_grace_ms,
                State::Launching => self.rules.register_deadline_ms,
                _ => continue,
            };
            worker.deadline.get_or_insert(now.monotonic_ms + timeout_ms);
        }
    }
}
