//! Handles due timers of the core, and ends applications without tasks.

use hayward_vocabulary::Timestamp;

use crate::core::application::{Application, Step};
use crate::core::{Event, State};
use crate::failure::GANG_TIMEOUT;
use crate::gang_policy::Style;
use crate::no_change_reason::{Reason, Refusal};
use crate::timers::Timer;

impl Application {
    pub(super) fn tick(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        while let Some(timer) = self.head.timers.pop_due(now) {
            match timer {
                Timer::Placeholder => self.on_gang_timeout(now, step)?,
                Timer::GangAdmission => {
                    let is_waiting = matches!(self.head.state, State::New | State::Accepted);
                    if is_waiting && !self.head.formed {
                        self.on_gang_timeout(now, step)?;
                    }
                }
                Timer::GangRepair if !self.lost_members().is_empty() => {
                    self.release_gang(now, step)?;
                }
                Timer::Completing => self.on_completing_timeout(now, step)?,
                Timer::Terminated => self.fire(Event::Expire, now, step)?,
                // The gang was repaired in time, or the timer belongs to the planner.
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends placeholders and their asks after a timeout. Real tasks are not affected.
    fn on_gang_timeout(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        let has_real_ask = self.pending.values().any(|ask| !ask.placeholder);
        if self.lacks_successors() && !has_real_ask && !self.has_real_task() {
            // The gang was repaired, but its owner sent no task.
            return self.release_gang(now, step);
        }
        self.head
            .groups
            .values_mut()
            .for_each(|group| group.waived = true);
        match (self.head.state, self.head.submission.policy.style) {
            (State::New | State::Accepted, Style::Soft) => self.fire(Event::Resume, now, step)?,
            (State::New | State::Accepted, Style::Hard) => {
                self.head.message = Some(GANG_TIMEOUT.to_owned());
                self.fire(Event::Fail, now, step)?;
            }
            // Unused placeholders are released. Replacements in progress continue.
            _ => {}
        }
        self.request_release(|ask| ask.placeholder, now, step)
    }

    /// Ends an application without tasks, or with placeholders only. It then completes and expires
    /// like any other.
    pub(super) fn finish(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        let is_active = matches!(
            self.head.state,
            State::New | State::Accepted | State::Running
        );
        if !is_active || !self.allocations.is_empty() || !self.pending.is_empty() {
            return Err(self.refusal(Reason::NotLegalHere, &"Finish"));
        }
        if self.head.state == State::New {
            self.fire(Event::Run, now, step)?;
        }
        self.fire(Event::Complete, now, step)
    }

    /// Releases unused placeholders. The state Completed follows their confirmation.
    fn on_completing_timeout(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        if self.head.state != State::Completing {
            return Ok(());
        }
        self.head.ending = true;
        if self.has_placeholders() {
            return self.request_release(|ask| ask.placeholder, now, step);
        }
        self.advance_state(now, step)
    }
}

#[cfg(test)]
mod tests {
    use crate::core::{Input, State};
    use crate::frontend::{self, State as Front};
    use crate::gang_policy::Policy;
    use crate::no_change_reason::Reason;
    use crate::test_application::{TestApplication, group, size, space};

    #[test]
    fn an_empty_application_ends_and_expires() {
        let gang = || {
            TestApplication::new(vec![group("g", 2, size(1, 0))], Policy::default())
                .after_submission()
        };
        let placed_gang = || {
            let mut test_app = gang();
            test_app.run_pass(vec![space("a", size(2, 0))]);
            test_app
        };
        let partly_placed_gang = || {
            let mut test_app = gang();
            assert_eq!(test_app.place_task("tg-app-1-g-0000000001", "a"), None);
            test_app
        };
        let fail = frontend::Input::Fail { reason: None };
        for (mut test_app, input, end) in [
            (
                TestApplication::without_groups().after_submission(),
                frontend::Input::Complete,
                Front::Completed,
            ),
            (
                TestApplication::without_groups().after_submission(),
                frontend::Input::Kill,
                Front::Killed,
            ),
            (
                TestApplication::without_groups().after_submission(),
                fail.clone(),
                Front::Failing,
            ),
            (placed_gang(), frontend::Input::Complete, Front::Completed),
            (partly_placed_gang(), fail, Front::Failing),
        ] {
            assert_eq!(test_app.apply(input), None);
            assert_eq!(test_app.apply_to_core(Input::Finish), None);
            assert_eq!(test_app.states(), (end, State::Completing));
            test_app.advance(30_000);
            assert_eq!(test_app.states(), (end, State::Completed));
            test_app.advance(3 * 86_400_000);
            assert_eq!(test_app.states(), (end, State::Expired));
        }
    }

    #[test]
    fn an_application_with_allocations_does_not_finish() {
        let mut test_app = TestApplication::without_groups();
        test_app.add_task("real", size(1, 0), None);
        let mut test_app = test_app.after_submission();
        assert_eq!(
            test_app.apply_to_core(Input::Finish),
            Some(Reason::NotLegalHere)
        );
    }
}
