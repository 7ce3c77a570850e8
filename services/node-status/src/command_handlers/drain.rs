//! Handlers of the commands for drains: beginning, changing, cancelling and showing one. Reports of
//! the agent and of rm-scheduler advance a drain.

use hayward_node_status_api::drain::{DrainRequest, DrainState, DrainView};
use hayward_node_status_domain::pool_minimum::{self, PoolMinimum};
use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::node_publications::ClearingEntry;
use hayward_vocabulary::{NodeName, Timestamp};

use super::Cause;
use crate::command::DrainNode;
use crate::error::Refusal;
use crate::ledger::Ledger;
use crate::model::{Drain, Node, validate_drain_request};
use crate::state_conversions;
use crate::store::{DrainRow, Rows};

impl Ledger {
    /// Begins a drain, or changes the active one. Repeating a request changes nothing.
    pub(crate) fn drain(
        &mut self,
        drain: DrainNode,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<DrainView, Refusal> {
        let name = &drain.node;
        let request = &drain.request;
        if !self.nodes.contains_key(name) {
            return Err(Refusal::NoNode(name.clone()));
        }
        let is_active = self.active_drain(name).is_some();
        let deadline = validate_drain_request(request, !is_active, moment.now)?;
        let event = if is_active {
            self.change_drain(name, request, deadline, moment.now)
        } else {
            if !request.force {
                self.check_pool_minimum(name)?;
            }
            Some(self.begin_drain(&drain, deadline, moment.now))
        };
        if let Some(event) = event {
            let cause = Cause {
                publish: true,
                event: Some(event),
                by: Some(drain.by),
                judgement_changed: false,
            };
            self.write_drain_row(name, &mut batch.rows);
            self.judge_node(name, cause, moment, batch);
        }
        self.judge_drain(name, moment, batch);
        self.show_drain(name, moment)
    }

    /// Begins a drain, and returns the text for the history.
    fn begin_drain(
        &mut self,
        drain: &DrainNode,
        deadline: Option<Timestamp>,
        now: Timestamp,
    ) -> String {
        let DrainNode {
            node: name,
            request,
            by,
        } = drain;
        let number = self.drains.get(name).map_or(1, |drain| drain.number + 1);
        let reason = request.reason.clone().unwrap_or_default();
        let paused = request.paused.unwrap_or(false);
        let drain = Drain {
            number,
            reason: reason.clone(),
            by: by.clone(),
            began: now,
            deadline,
            paused,
            state: requested_state(paused),
            state_since: now,
            running: None,
            next_check: None,
        };
        self.drains.insert(name.clone(), drain);
        let forced = if request.force { ", forced" } else { "" };
        format!("drain {number} begun{forced}: {reason}")
    }

    /// Applies a request to the active drain. Returns the text for the history, or `None` if
    /// nothing changed.
    fn change_drain(
        &mut self,
        name: &NodeName,
        request: &DrainRequest,
        deadline: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<String> {
        let drain = self.drains.get_mut(name)?;
        let before = drain.order();
        if let Some(reason) = &request.reason {
            drain.reason.clone_from(reason);
        }
        drain.deadline = deadline.or(drain.deadline);
        drain.paused = request.paused.unwrap_or(drain.paused);
        if drain.order() == before {
            return None;
        }
        // A pause changes the state here, so that the history has one entry for the pause.
        let pause_changed = before.paused != drain.paused;
        if pause_changed && matches!(drain.state, DrainState::Draining | DrainState::Paused) {
            drain.state = requested_state(drain.paused);
            drain.state_since = now;
        }
        let change = match (before.paused, drain.paused) {
            (false, true) => "paused",
            (true, false) => "resumed",
            _ => "changed",
        };
        Some(format!("drain {} {change}: {}", drain.number, drain.reason))
    }

    /// Refuses a drain that would leave too few working nodes in the pool (B4).
    fn check_pool_minimum(&self, name: &NodeName) -> Result<(), Refusal> {
        let takes_work = |node: &NodeName| {
            self.nodes
                .get(node)
                .is_some_and(|it| it.entry(self.active_drain(node)).takes_work())
        };
        let Some(node) = self.nodes.get(name).filter(|_| takes_work(name)) else {
            return Ok(());
        };
        let (mut size, mut unavailable) = (0, 0);
        let is_in_pool = |it: &&Node| it.brake_pool() == node.brake_pool();
        for other in self.nodes.values().filter(is_in_pool) {
            size += 1;
            unavailable += u64::from(!takes_work(&other.name));
        }
        let guards = &self.context.guards;
        pool_minimum::check_one_more(PoolMinimum {
            size,
            unavailable,
            minimum: guards.pool_floor,
            percent: guards.drain_percent,
        })
        .map_err(|broken_limit| Refusal::TooFew {
            node: name.clone(),
            pool: node.brake_pool().to_owned(),
            size,
            unavailable,
            minimum: guards.pool_floor,
            percent: guards.drain_percent,
            broken_limit,
        })
    }

    /// Cancels a drain, even after the node was drained.
    pub(crate) fn cancel_drain(
        &mut self,
        name: &NodeName,
        by: &str,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<DrainView, Refusal> {
        if !self.nodes.contains_key(name) {
            return Err(Refusal::NoNode(name.clone()));
        }
        let number = match self.drains.get_mut(name).filter(|drain| drain.is_active()) {
            None => return Err(Refusal::NoDrain(name.clone())),
            Some(drain) => {
                drain.state = DrainState::Cancelled;
                drain.state_since = moment.now;
                drain.number
            }
        };
        let cause = Cause {
            publish: true,
            event: Some(format!("drain {number} cancelled")),
            by: Some(by.to_owned()),
            judgement_changed: false,
        };
        self.write_drain_row(name, &mut batch.rows);
        self.reschedule_check(name, moment.now);
        self.judge_node(name, cause, moment, batch);
        self.show_drain(name, moment)
    }

    pub(crate) fn show_drain(
        &self,
        name: &NodeName,
        moment: &Moment,
    ) -> Result<DrainView, Refusal> {
        if !self.nodes.contains_key(name) {
            return Err(Refusal::NoNode(name.clone()));
        }
        let drain = self
            .drains
            .get(name)
            .ok_or_else(|| Refusal::NoDrain(name.clone()))?;
        Ok(drain.view(name.clone(), self.find_clearing(name, drain), moment.now))
    }

    pub(crate) fn active_drain(&self, name: &NodeName) -> Option<&Drain> {
        self.drains.get(name).filter(|drain| drain.is_active())
    }

    /// Returns the progress that rm-scheduler reports for this drain. Reports about an earlier
    /// drain are ignored.
    fn find_clearing(&self, name: &NodeName, drain: &Drain) -> Option<&ClearingEntry> {
        let entry = self.clearings.get(&format!("drain/{name}"))?;
        (entry.number == drain.number).then_some(entry)
    }

    /// Advances a drain when the reports allow it (I17).
    pub(crate) fn judge_drain(
        &mut self,
        name: &NodeName,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(drain) = self.active_drain(name) else {
            return;
        };
        let (stage, why) = drain.judge(self.find_clearing(name, drain), moment.now);
        let state = state_conversions::to_api_drain_state(stage);
        let number = drain.number;
        if state != drain.state {
            if let Some(drain) = self.drains.get_mut(name) {
                drain.state = state;
                drain.state_since = moment.now;
            }
            let event = format!(
                "drain {number} {}: {why}",
                state_conversions::drain_state_name(state)
            );
            let cause = Cause {
                publish: true,
                event: Some(event),
                ..Cause::default()
            };
            self.write_drain_row(name, &mut batch.rows);
            self.judge_node(name, cause, moment, batch);
        }
        self.reschedule_check(name, moment.now);
    }

    /// Judges the drains whose check is due.
    pub(crate) fn check_drain_deadlines(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let passed = |(at, _): &&(Timestamp, NodeName)| *at <= moment.now;
        let names: Vec<NodeName> = self
            .drain_checks
            .iter()
            .take_while(passed)
            .map(|(_, name)| name.clone())
            .collect();
        for name in names {
            self.judge_drain(&name, moment, batch);
        }
    }

    pub(crate) fn write_drain_row(&self, name: &NodeName, rows: &mut Rows) {
        if let Some(drain) = self.drains.get(name) {
            rows.drains
                .insert(name.clone(), DrainRow::from_drain(drain));
        }
    }

    /// Updates the scheduled check of a drain.
    pub(crate) fn reschedule_check(&mut self, name: &NodeName, now: Timestamp) {
        let Some(drain) = self.drains.get_mut(name) else {
            return;
        };
        let next_check = drain.next_check_at(now);
        if let Some(old) = std::mem::replace(&mut drain.next_check, next_check) {
            self.drain_checks.remove(&(old, name.clone()));
        }
        if let Some(next_check) = next_check {
            self.drain_checks.insert((next_check, name.clone()));
        }
    }
}

fn requested_state(paused: bool) -> DrainState {
    if paused {
        DrainState::Paused
    } else {
        DrainState::Draining
    }
}
