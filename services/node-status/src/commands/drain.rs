//! Emptying a node: begun, changed, cancelled and looked at by operators; carried on by what the
//! agent and rm-scheduler say (see [`crate::absorb`]).

use hayward_node_status_api::drain::{DrainRequest, DrainState, DrainView};
use hayward_node_status_domain::pool_minimum::{self, Room};
use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::evidence::ClearingEntry;
use hayward_vocabulary::{NodeName, Timestamp};

use super::Cause;
use crate::error::Refusal;
use crate::format;
use crate::ledger::Ledger;
use crate::model::{Drain, Node, checked};
use crate::store::{DrainRow, Rows};

impl Ledger {
    /// Begins a drain, or changes the one that lasts. Saying the same twice is no news.
    pub(crate) fn drain(
        &mut self,
        (name, request, by): (&NodeName, DrainRequest, String),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<DrainView, Refusal> {
        if !self.nodes.contains_key(name) {
            return Err(Refusal::NoNode(name.clone()));
        }
        let lasts = self.lasting_drain(name).is_some();
        let deadline = checked(&request, !lasts, moment.now)?;
        let event = if lasts {
            self.change_drain(name, &request, deadline, moment.now)
        } else {
            if !request.force {
                self.can_spare(name)?;
            }
            Some(self.begin_drain((name, &request, &by), deadline, moment.now))
        };
        if let Some(event) = event {
            let cause = Cause {
                news: true,
                event: Some(event),
                by: Some(by),
                turned: false,
            };
            self.note_drain(name, &mut batch.rows);
            self.settle(name, cause, moment, batch);
        }
        self.judge_drain(name, moment, batch);
        self.show_drain(name, moment)
    }

    fn begin_drain(
        &mut self,
        (name, request, by): (&NodeName, &DrainRequest, &str),
        deadline: Option<Timestamp>,
        now: Timestamp,
    ) -> String {
        let number = self.drains.get(name).map_or(1, |drain| drain.number + 1);
        let reason = request.reason.clone().unwrap_or_default();
        let paused = request.paused.unwrap_or(false);
        let drain = Drain {
            number,
            reason: reason.clone(),
            by: by.to_owned(),
            began: now,
            deadline,
            paused,
            state: order_state(paused),
            state_since: now,
            alive: None,
            look: None,
        };
        self.drains.insert(name.clone(), drain);
        let forced = if request.force { ", forced" } else { "" };
        format!("drain {number} begun{forced}: {reason}")
    }

    /// What of the request is another order; none when all of it was so before.
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
        // A pause is a state of its own, and this line of the history is all there is to say of it.
        let turned = before.paused != drain.paused;
        if turned && matches!(drain.state, DrainState::Draining | DrainState::Paused) {
            drain.state = order_state(drain.paused);
            drain.state_since = now;
        }
        let what = match (before.paused, drain.paused) {
            (false, true) => "paused",
            (true, false) => "resumed",
            _ => "changed",
        };
        Some(format!("drain {} {what}: {}", drain.number, drain.reason))
    }

    /// I16, B4: a pool keeps its floor and its part, unless somebody says otherwise.
    fn can_spare(&self, name: &NodeName) -> Result<(), Refusal> {
        let works = |node: &NodeName| {
            self.nodes
                .get(node)
                .is_some_and(|it| it.entry(self.lasting_drain(node)).takes_work())
        };
        let Some(node) = self.nodes.get(name).filter(|_| works(name)) else {
            return Ok(());
        };
        let (mut size, mut out) = (0, 0);
        let here = |it: &&Node| it.counted_in() == node.counted_in();
        for other in self.nodes.values().filter(here) {
            size += 1;
            out += u64::from(!works(&other.name));
        }
        let guards = &self.context.guards;
        pool_minimum::for_one_more(Room {
            size,
            out,
            floor: guards.pool_floor,
            percent: guards.drain_percent,
        })
        .map_err(|few| Refusal::TooFew {
            node: name.clone(),
            pool: node.counted_in().to_owned(),
            size,
            out,
            floor: guards.pool_floor,
            percent: guards.drain_percent,
            few,
        })
    }

    pub(crate) fn cancel_drain(
        &mut self,
        (name, by): (&NodeName, &str),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<DrainView, Refusal> {
        if !self.nodes.contains_key(name) {
            return Err(Refusal::NoNode(name.clone()));
        }
        let number = match self.drains.get_mut(name).filter(|drain| drain.lasts()) {
            None => return Err(Refusal::NoDrain(name.clone())),
            Some(drain) => {
                drain.state = DrainState::Cancelled;
                drain.state_since = moment.now;
                drain.number
            }
        };
        let cause = Cause {
            news: true,
            event: Some(format!("drain {number} cancelled")),
            by: Some(by.to_owned()),
            turned: false,
        };
        self.note_drain(name, &mut batch.rows);
        self.look_again(name, moment.now);
        self.settle(name, cause, moment, batch);
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
        Ok(drain.view(name.clone(), self.clearing(name, drain), moment.now))
    }

    pub(crate) fn lasting_drain(&self, name: &NodeName) -> Option<&Drain> {
        self.drains.get(name).filter(|drain| drain.lasts())
    }

    /// What rm-scheduler says of this drain, and not of one before it.
    fn clearing(&self, name: &NodeName, drain: &Drain) -> Option<&ClearingEntry> {
        let entry = self.clearings.get(&format!("drain/{name}"))?;
        (entry.number == drain.number).then_some(entry)
    }

    /// I17: moves a drain on when what is known says so.
    pub(crate) fn judge_drain(
        &mut self,
        name: &NodeName,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(drain) = self.lasting_drain(name) else {
            return;
        };
        let (stage, why) = drain.judged(self.clearing(name, drain), moment.now);
        let state = format::drain_state(stage);
        let number = drain.number;
        if state != drain.state {
            if let Some(drain) = self.drains.get_mut(name) {
                drain.state = state;
                drain.state_since = moment.now;
            }
            let event = format!("drain {number} {}: {why}", format::stored_drain(state));
            let cause = Cause {
                news: true,
                event: Some(event),
                ..Cause::default()
            };
            self.note_drain(name, &mut batch.rows);
            self.settle(name, cause, moment, batch);
        }
        self.look_again(name, moment.now);
    }

    pub(crate) fn note_drain(&self, name: &NodeName, rows: &mut Rows) {
        if let Some(drain) = self.drains.get(name) {
            rows.drains.insert(name.clone(), DrainRow::of(drain));
        }
    }

    /// Keeps its place among the deadlines right.
    pub(crate) fn look_again(&mut self, name: &NodeName, now: Timestamp) {
        let Some(drain) = self.drains.get_mut(name) else {
            return;
        };
        let look = drain.look_at(now);
        if let Some(old) = std::mem::replace(&mut drain.look, look) {
            self.deadlines.remove(&(old, name.clone()));
        }
        if let Some(at) = look {
            self.deadlines.insert((at, name.clone()));
        }
    }
}

fn order_state(paused: bool) -> DrainState {
    if paused {
        DrainState::Paused
    } else {
        DrainState::Draining
    }
}
