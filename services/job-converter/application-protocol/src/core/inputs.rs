//! Inputs from the frontend and the planner to the core.

use hayward_vocabulary::{NodeName, Timestamp};

use crate::core::application::{Allocation, Application, Step};
use crate::core::{Event, State};
use crate::ids::TaskId;
use crate::messages::{Ask, Termination, ToCore, ToFront};
use crate::reason::{Reason, Refused};
use crate::timers::Timer;

impl Application {
    pub(super) fn admitted(
        &mut self,
        answer: Result<(), String>,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refused> {
        if self.head.accepted {
            return Err(self.refused(Reason::AlreadySo, &"Admitted"));
        }
        if let Err(reason) = answer {
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

    pub(super) fn front(
        &mut self,
        message: ToCore,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refused> {
        match message {
            ToCore::Submit(_) => Err(self.refused(Reason::AlreadySo, &"Submit")),
            ToCore::Ask(ask) => self.ask(ask, now, step),
            ToCore::ReleaseAsk { key } => self.drop_ask(&key, now, step),
            ToCore::ReleaseAllocation { key, termination } => {
                self.unlink_one(&key);
                self.ended(&key, termination, now, step)
            }
            ToCore::Confirm { key, termination } => self.confirmed(&key, termination, now, step),
            ToCore::Remove => {
                self.pending.clear();
                self.allocations.clear();
                Ok(())
            }
        }
    }

    fn knows(&self, key: &TaskId) -> bool {
        let mut held = self.allocations.values();
        self.pending.contains_key(key)
            || self.allocations.contains_key(key)
            || held.any(|it| {
                it.successor
                    .as_ref()
                    .is_some_and(|(ask, _)| ask.key == *key)
            })
    }

    fn ask(&mut self, ask: Ask, now: Timestamp, step: &mut Step) -> Result<(), Refused> {
        if self.knows(&ask.key) {
            return Err(self.refused(Reason::AlreadySo, &"Ask"));
        }
        if self.head.state.is_over() {
            step.send(ToFront::AskRejected {
                key: ask.key,
                reason: format!("the application is {:?}", self.head.state),
            });
            return Ok(());
        }
        if !self.head.accepted {
            return Err(self.refused(Reason::NotAccepted, &"Ask"));
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
    fn drop_ask(&mut self, key: &TaskId, now: Timestamp, step: &mut Step) -> Result<(), Refused> {
        if let Some(ask) = self.pending.remove(key) {
            if ask.placeholder {
                self.group(&ask, |group| {
                    group.timedout += 1;
                    group.returned += 1;
                });
                self.update_after_shrink(now, step)?;
            }
        } else {
            // The ask was replacing a placeholder, and the link is no longer needed.
            let linked = self.allocations.values_mut().find(|it| {
                let successor = it.successor.as_ref();
                successor.is_some_and(|(ask, _)| ask.key == *key)
            });
            let Some(placeholder) = linked else {
                return Err(self.refused(Reason::UnknownTask, &"ReleaseAsk"));
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
    fn complete_if_idle(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refused> {
        let working = matches!(self.head.state, State::Accepted | State::Running);
        let idle = self.pending.is_empty() && !self.has_real();
        if working && idle && !self.owes_members() {
            return self.fire(Event::Complete, now, step);
        }
        Ok(())
    }

    /// Handles the confirmed end of a released allocation. The accounting changes only here.
    fn confirmed(
        &mut self,
        key: &TaskId,
        termination: Termination,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refused> {
        let Some(held) = self.allocations.get(key) else {
            return Err(self.refused(Reason::NotAllocated, &"Confirm"));
        };
        if held.released.is_none() && !held.ask.placeholder {
            return Err(self.refused(Reason::NoRelease, &"Confirm"));
        }
        let termination = held.released.unwrap_or(termination);
        self.ended(key, termination, now, step)
    }

    /// Handles an allocation that is gone for any reason.
    pub(super) fn ended(
        &mut self,
        key: &TaskId,
        termination: Termination,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refused> {
        let Some(held) = self.allocations.remove(key) else {
            return Err(self.refused(Reason::NotAllocated, &"Release"));
        };
        if let Some((ask, node)) = held.successor {
            self.group(&held.ask, |group| group.replaced += 1);
            self.hold(ask, node, now, step);
        } else if held.ask.placeholder && termination == Termination::PlaceholderReplaced {
            // The task that replaced this placeholder has ended since. Its member counts as
            // fulfilled.
            self.group(&held.ask, |group| {
                group.replaced += 1;
                group.fulfilled += 1;
            });
        } else if held.ask.placeholder {
            let lost = matches!(
                termination,
                Termination::Unknown | Termination::PreemptedByScheduler
            );
            let returned = termination == Termination::StoppedByRm;
            self.group(&held.ask, |group| {
                group.timedout += 1;
                group.returned += u32::from(returned);
                group.waived |= !lost && !returned;
            });
            self.update_after_shrink(now, step)?;
        } else if termination == Termination::StoppedByRm {
            self.group(&held.ask, |group| group.fulfilled += 1);
        } else {
            self.group(&held.ask, |group| group.owed += 1);
        }
        self.check_minimum(now, step)?;
        if !held.ask.placeholder {
            self.complete_if_idle(now, step)?;
        }
        self.advance_state(now, step)
    }

    fn hold(&mut self, ask: Ask, node: NodeName, now: Timestamp, step: &mut Step) {
        if !ask.placeholder {
            self.group(&ask, |group| group.owed = group.owed.saturating_sub(1));
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

    pub(super) fn placed(
        &mut self,
        key: &TaskId,
        node: NodeName,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refused> {
        let state = self.head.state;
        if !matches!(state, State::Accepted | State::Running | State::Completing) {
            return Err(self.refused(Reason::NotLegalHere, &"Placed"));
        }
        let Some(ask) = self.pending.get(key) else {
            return Err(self.refused(Reason::UnknownTask, &"Placed"));
        };
        if self.is_replaceable(ask) {
            return Err(self.refused(Reason::HasPlaceholder, &"Placed"));
        }
        let ask = self.pending.remove(key).expect("it was there");
        let placeholder = ask.placeholder;
        self.hold(ask, node, now, step);
        self.placed_one(placeholder, now, now, step)
    }

    /// Starts the application with its first real allocation, or with the last placeholder of its
    /// gang.
    fn placed_one(
        &mut self,
        placeholder: bool,
        since: Timestamp,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refused> {
        if placeholder && self.head.state == State::Accepted {
            self.arm_placeholder_timer(since, now);
        }
        let whole = self.is_whole();
        match self.head.state {
            State::Accepted if !placeholder || whole => self.fire(Event::Run, now, step)?,
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
    ) -> Result<(), Refused> {
        let Some(held) = self.allocations.get_mut(key) else {
            return Err(self.refused(Reason::NotAllocated, &"Preempt"));
        };
        if held.released.is_some() {
            return Err(self.refused(Reason::AlreadySo, &"Preempt"));
        }
        held.released = Some(termination);
        step.send(ToFront::Release {
            keys: vec![key.clone()],
            termination,
        });
        Ok(())
    }
}
