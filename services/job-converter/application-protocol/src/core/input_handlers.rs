//! Handles the inputs of the core that come from the frontend and the planner: admission, asks,
//! placements, confirmed ends and preemptions.

use hayward_vocabulary::{NodeName, Timestamp};

use crate::core::application::{Allocation, Application, Step};
use crate::core::{Event, State};
use crate::ids::TaskId;
use crate::messages::{Ask, Termination, ToCore, ToFront};
use crate::no_change_reason::{Reason, Refusal};
use crate::timers::Timer;

impl Application {
    pub(super) fn on_admitted(
        &mut self,
        result: Result<(), String>,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        if self.head.accepted {
            return Err(self.refusal(Reason::AlreadySo, &"Admitted"));
        }
        if let Err(reason) = result {
            self.fire(Event::Reject, now, step)?;
            step.send(ToFront::Rejected { reason });
            return Ok(());
        }
        self.head.accepted = true;
        step.send(ToFront::Accepted);
        let timeout_ms = self.head.submission.policy.gang_admission_timeout_ms;
        if timeout_ms > 0 && !self.head.groups.is_empty() {
            let due = now.plus_ms(timeout_ms);
            self.head.timers.arm(Timer::GangAdmission, due);
        }
        Ok(())
    }

    pub(super) fn on_message(
        &mut self,
        message: ToCore,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        match message {
            ToCore::Submit(_) => Err(self.refusal(Reason::AlreadySo, &"Submit")),
            ToCore::Ask(ask) => self.add_ask(ask, now, step),
            ToCore::ReleaseAsk { key } => self.drop_ask(&key, now, step),
            ToCore::ReleaseAllocation { key, termination } => {
                self.unlink_successor(&key);
                self.on_ended(&key, termination, now, step)
            }
            ToCore::Confirm { key, termination } => self.on_confirmed(&key, termination, now, step),
            ToCore::Remove => {
                self.pending.clear();
                self.allocations.clear();
                Ok(())
            }
        }
    }

    fn is_known(&self, key: &TaskId) -> bool {
        let mut allocations = self.allocations.values();
        self.pending.contains_key(key)
            || self.allocations.contains_key(key)
            || allocations.any(|it| {
                it.successor
                    .as_ref()
                    .is_some_and(|(ask, _)| ask.key == *key)
            })
    }

    fn add_ask(&mut self, ask: Ask, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        if self.is_known(&ask.key) {
            return Err(self.refusal(Reason::AlreadySo, &"Ask"));
        }
        if self.head.state.is_over() {
            step.send(ToFront::AskRejected {
                key: ask.key,
                reason: format!("the application is {:?}", self.head.state),
            });
            return Ok(());
        }
        if !self.head.accepted {
            return Err(self.refusal(Reason::NotAccepted, &"Ask"));
        }
        self.head.submitted_at = self.head.submitted_at.min(ask.created_at);
        if let (true, Some(group)) = (ask.placeholder, &ask.group) {
            self.head.groups.entry(group.clone()).or_default().count += 1;
        }
        self.pending.insert(ask.key.clone(), ask);
        match self.head.state {
            State::New | State::Completing => self.fire(Event::Run, now, step),
            _ => Ok(()),
        }
    }

    /// Removes a pending ask. A waiting placeholder counts as ended at once.
    fn drop_ask(&mut self, key: &TaskId, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        if let Some(ask) = self.pending.remove(key) {
            if ask.placeholder {
                self.update_group(&ask, |group| {
                    group.timedout += 1;
                    group.returned += 1;
                });
                self.on_placeholder_returned(now, step)?;
            }
        } else {
            // The ask was replacing a placeholder. This placeholder can be replaced again.
            let linked = self.allocations.values_mut().find(|it| {
                let successor = it.successor.as_ref();
                successor.is_some_and(|(ask, _)| ask.key == *key)
            });
            let Some(placeholder) = linked else {
                return Err(self.refusal(Reason::UnknownTask, &"ReleaseAsk"));
            };
            placeholder.successor = None;
            placeholder.released = None;
        }
        if self.allocations.is_empty() {
            self.complete_if_idle(now, step)?;
        }
        self.advance_state(now, step)
    }

    /// Completes an idle application. A gang that lost members is not complete: it is repaired or
    /// released as a whole (I13).
    fn complete_if_idle(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        let is_active = matches!(self.head.state, State::Accepted | State::Running);
        let is_idle = self.pending.is_empty() && !self.has_real_task();
        if is_active && is_idle && !self.lacks_successors() {
            return self.fire(Event::Complete, now, step);
        }
        Ok(())
    }

    /// Handles the confirmed end of a released allocation. The accounting changes only here.
    fn on_confirmed(
        &mut self,
        key: &TaskId,
        termination: Termination,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let Some(allocation) = self.allocations.get(key) else {
            return Err(self.refusal(Reason::NotAllocated, &"Confirm"));
        };
        if allocation.released.is_none() && !allocation.ask.placeholder {
            return Err(self.refusal(Reason::NoRelease, &"Confirm"));
        }
        let termination = allocation.released.unwrap_or(termination);
        self.on_ended(key, termination, now, step)
    }

    /// Handles an allocation that is gone for any reason.
    pub(super) fn on_ended(
        &mut self,
        key: &TaskId,
        termination: Termination,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let Some(allocation) = self.allocations.remove(key) else {
            return Err(self.refusal(Reason::NotAllocated, &"Release"));
        };
        if let Some((ask, node)) = allocation.successor {
            self.update_group(&allocation.ask, |group| group.replaced += 1);
            self.add_allocation(ask, node, now, step);
        } else if allocation.ask.placeholder && termination == Termination::PlaceholderReplaced {
            // The task that replaced this placeholder has ended since. Its member counts as
            // fulfilled.
            self.update_group(&allocation.ask, |group| {
                group.replaced += 1;
                group.fulfilled += 1;
            });
        } else if allocation.ask.placeholder {
            let is_lost = matches!(
                termination,
                Termination::Unknown | Termination::PreemptedByScheduler
            );
            let is_returned = termination == Termination::StoppedByRm;
            self.update_group(&allocation.ask, |group| {
                group.timedout += 1;
                group.returned += u32::from(is_returned);
                group.waived |= !is_lost && !is_returned;
            });
            self.on_placeholder_returned(now, step)?;
        } else if termination == Termination::StoppedByRm {
            self.update_group(&allocation.ask, |group| group.fulfilled += 1);
        } else {
            self.update_group(&allocation.ask, |group| group.owed += 1);
        }
        self.check_minimum(now, step)?;
        if !allocation.ask.placeholder {
            self.complete_if_idle(now, step)?;
        }
        self.advance_state(now, step)
    }

    fn add_allocation(&mut self, ask: Ask, node: NodeName, now: Timestamp, step: &mut Step) {
        if !ask.placeholder {
            self.update_group(&ask, |group| group.owed = group.owed.saturating_sub(1));
        }
        step.send(ToFront::Allocated {
            key: ask.key.clone(),
            node: node.clone(),
        });
        let allocation = Allocation {
            node,
            since: now,
            released: None,
            successor: None,
            ask,
        };
        self.allocations
            .insert(allocation.ask.key.clone(), allocation);
    }

    pub(super) fn on_placed(
        &mut self,
        key: &TaskId,
        node: NodeName,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let state = self.head.state;
        if !matches!(state, State::Accepted | State::Running | State::Completing) {
            return Err(self.refusal(Reason::NotLegalHere, &"Placed"));
        }
        let Some(ask) = self.pending.get(key) else {
            return Err(self.refusal(Reason::UnknownTask, &"Placed"));
        };
        if self.can_replace_placeholder(ask) {
            return Err(self.refusal(Reason::HasPlaceholder, &"Placed"));
        }
        let ask = self.pending.remove(key).expect("the ask was found above");
        let placeholder = ask.placeholder;
        self.add_allocation(ask, node, now, step);
        self.after_placement(placeholder, now, now, step)
    }

    /// Starts the application with its first real allocation, or with the last placeholder of its
    /// gang.
    fn after_placement(
        &mut self,
        placeholder: bool,
        since: Timestamp,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        if placeholder && self.head.state == State::Accepted {
            self.arm_placeholder_timer(since, now);
        }
        let is_complete = self.is_complete();
        match self.head.state {
            State::Accepted if !placeholder || is_complete => self.fire(Event::Run, now, step)?,
            State::Completing if !placeholder => self.fire(Event::Run, now, step)?,
            _ => {}
        }
        self.check_minimum(now, step)
    }

    /// Arms the placeholder timer with the first placeholder. After a restart it runs for the
    /// remaining time, at least 1 ms.
    fn arm_placeholder_timer(&mut self, since: Timestamp, now: Timestamp) {
        let timeout_ms = self.head.submission.policy.placeholders_wait_ms();
        let due = since.plus_ms(timeout_ms).max(now.plus_ms(1));
        let armed = self.head.timers.due(Timer::Placeholder);
        let due = armed.map_or(due, |armed| armed.min(due));
        self.head.timers.arm(Timer::Placeholder, due);
    }

    /// Requests a release. The allocation counts until the confirmation.
    pub(super) fn preempt(
        &mut self,
        key: &TaskId,
        termination: Termination,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let Some(allocation) = self.allocations.get_mut(key) else {
            return Err(self.refusal(Reason::NotAllocated, &"Preempt"));
        };
        if allocation.released.is_some() {
            return Err(self.refusal(Reason::AlreadySo, &"Preempt"));
        }
        allocation.released = Some(termination);
        step.send(ToFront::Release {
            keys: vec![key.clone()],
            termination,
        });
        Ok(())
    }
}
