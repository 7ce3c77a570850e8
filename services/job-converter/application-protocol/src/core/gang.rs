//! The gang of an application: counters per group, missing members, and the minimum that must hold
//! from the time when the gang is complete (I13).
//!
//! The end of a member changes the minimum as follows:
//!
//! - A task that succeeded still counts as a member.
//! - A placeholder that the owner returned reduces the minimum by one.
//! - A placeholder that timed out, or was too small for its task, waives the minimum of its group.
//! - A lost member is missing. A repair creates a placeholder for it.

use hayward_vocabulary::{Size, Timestamp};
use serde::{Deserialize, Serialize};

use crate::core::application::{Allocation, Application, Step};
use crate::core::{Event, State};
use crate::failure::GANG_SHORT;
use crate::gang_admission::{MemberPlacement, MemberRequest};
use crate::gang_policy::{Admission, WhenShort};
use crate::ids::{GroupName, TaskId};
use crate::messages::{Ask, Termination, ToFront};
use crate::no_change_reason::{Reason, Refusal};
use crate::task::Task;
use crate::task_groups::{TaskGroup, placeholder_size};
use crate::timers::Timer;
use crate::waiting_gangs::WaitingGang;

/// A gang that holds only a part of its minimum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IncompleteGang {
    pub live_members: u64,
    pub missing_members: u64,
    /// Whether the gang was complete and lost members.
    pub formed: bool,
    /// Deadline of the repair, after which the gang is released. `None` if no deadline applies.
    pub repair_deadline: Option<Timestamp>,
}

/// Counters of one task group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupCounters {
    pub minimum: u32,
    /// Number of placeholders that were created.
    pub count: u32,
    /// Number of placeholders that a task replaced.
    pub replaced: u32,
    /// Number of placeholders that ended without a replacement.
    pub timedout: u32,
    /// Number of real members that succeeded.
    #[serde(default)]
    pub fulfilled: u32,
    /// Number of lost real members without a successor.
    #[serde(default)]
    pub owed: u32,
    /// Number of placeholders that the owner returned. Each reduces the minimum by one.
    #[serde(default)]
    pub returned: u32,
    /// Whether the minimum of the group no longer holds.
    #[serde(default)]
    pub waived: bool,
}

impl GroupCounters {
    /// Returns the number of placeholders that a real task may still replace.
    pub fn replaceable(&self) -> u32 {
        self.count.saturating_sub(self.replaced + self.timedout)
    }
}

impl Application {
    pub(super) fn update_group(&mut self, ask: &Ask, change: impl FnOnce(&mut GroupCounters)) {
        let name = ask.group.as_ref();
        if let Some(group) = name.and_then(|name| self.head.groups.get_mut(name)) {
            change(group);
        }
    }

    /// Returns true if the task of this ask may still replace a placeholder of its group. Other
    /// asks are placed normally.
    pub fn can_replace_placeholder(&self, ask: &Ask) -> bool {
        let name = ask.group.as_ref();
        let group = name.and_then(|name| self.head.groups.get(name));
        !ask.placeholder && group.is_some_and(|group| group.replaceable() > 0)
    }

    pub fn placeholder_size(&self) -> Size {
        placeholder_size(&self.head.submission.task_groups)
    }

    /// Returns the minimum of a group, reduced by returned placeholders.
    fn required_members(&self, group: &TaskGroup) -> u32 {
        let counters = self.head.groups.get(&group.name);
        let returned = counters.map_or(0, |group| group.returned);
        group.min_member.saturating_sub(returned)
    }

    /// Returns true if placeholders hold the whole minimum.
    pub(super) fn is_complete(&self) -> bool {
        let groups = self.head.submission.task_groups.iter();
        let requested: Vec<TaskGroup> = groups
            .map(|group| TaskGroup {
                min_member: self.required_members(group),
                ..group.clone()
            })
            .collect();
        !requested.is_empty() && placeholder_size(&requested).fits(&self.used_by_placeholders())
    }

    /// Checks the gang after its minimum shrank by one, because it may be complete now.
    pub(super) fn on_placeholder_returned(
        &mut self,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let has_placeholder = self.placeholders().next().is_some();
        if self.head.state == State::Accepted && has_placeholder && self.is_complete() {
            self.fire(Event::Run, now, step)?;
        }
        self.check_minimum(now, step)
    }

    /// Counts the members of a group whose allocation is not being released.
    fn count_live_members(&self, name: &GroupName) -> u32 {
        let is_live = |it: &&Allocation| {
            let retained = matches!(it.released, None | Some(Termination::PlaceholderReplaced));
            retained && it.ask.group.as_ref() == Some(name)
        };
        let live = self.allocations.values().filter(is_live).count();
        u32::try_from(live).unwrap_or(u32::MAX)
    }

    /// Returns the number of members that the group lacks to its minimum.
    fn missing_members(&self, group: &TaskGroup) -> u32 {
        let counters = self.head.groups.get(&group.name);
        let counters = counters.copied().unwrap_or_default();
        if counters.waived {
            return 0;
        }
        let has = self
            .count_live_members(&group.name)
            .saturating_add(counters.fulfilled);
        self.required_members(group).saturating_sub(has)
    }

    /// Returns the missing members of a gang that was complete.
    pub fn lost_members(&self) -> Vec<MemberRequest> {
        let minimum_applies = matches!(self.head.state, State::Accepted | State::Running);
        if !self.head.formed || !minimum_applies {
            return Vec::new();
        }
        let groups = self.head.submission.task_groups.iter();
        let lost = groups.map(|group| MemberRequest {
            count: self.missing_members(group),
            ..MemberRequest::from(group)
        });
        lost.filter(|wanted| wanted.count > 0).collect()
    }

    /// Returns true if the gang was complete and waits for successors of lost members.
    pub fn lacks_successors(&self) -> bool {
        let lacks_successor = |group: &GroupCounters| group.owed > 0 && !group.waived;
        self.head.formed && self.head.groups.values().any(lacks_successor)
    }

    /// Returns the missing part of the gang. In partial mode, only a gang that was complete is
    /// checked (I13).
    pub fn incomplete_gang(&self) -> Option<IncompleteGang> {
        let formed = self.head.formed;
        let minimum_applies = matches!(self.head.state, State::Accepted | State::Running);
        let is_atomic = self.head.submission.policy.admission == Admission::Atomic;
        if !minimum_applies || !(formed || is_atomic) {
            return None;
        }
        let groups = || self.head.submission.task_groups.iter();
        let incomplete_gang = IncompleteGang {
            live_members: groups()
                .map(|it| u64::from(self.count_live_members(&it.name)))
                .sum(),
            missing_members: groups().map(|it| u64::from(self.missing_members(it))).sum(),
            formed,
            repair_deadline: self.head.timers.due(Timer::GangRepair),
        };
        (incomplete_gang.live_members > 0 && incomplete_gang.missing_members > 0)
            .then_some(incomplete_gang)
    }

    /// Returns the members that an incomplete gang asks for. In atomic mode, there are none until
    /// all placeholders are pending.
    fn unplaced_members(&self) -> Vec<MemberRequest> {
        if self.head.formed || self.head.state != State::Accepted {
            return Vec::new();
        }
        let groups = self.head.submission.task_groups.iter();
        let waiting = groups.map(|group| {
            let asks = self.pending.values();
            let group_asks =
                asks.filter(|it| it.placeholder && it.group.as_ref() == Some(&group.name));
            MemberRequest {
                count: u32::try_from(group_asks.count()).unwrap_or(u32::MAX),
                ..MemberRequest::from(group)
            }
        });
        let waiting: Vec<MemberRequest> = waiting.collect();
        let is_atomic = self.head.submission.policy.admission == Admission::Atomic;
        let mut groups = self.head.submission.task_groups.iter().zip(&waiting);
        if is_atomic
            && groups.any(|(group, requested)| requested.count < self.missing_members(group))
        {
            return Vec::new();
        }
        waiting.into_iter().filter(|it| it.count > 0).collect()
    }

    /// Returns the gang's entry among the waiting gangs.
    pub fn waiting_entry(&self, queue_path: Vec<String>) -> Option<WaitingGang> {
        let lost = self.lost_members();
        let is_repair = !lost.is_empty();
        let wanted = if is_repair {
            lost
        } else {
            self.unplaced_members()
        };
        (!wanted.is_empty()).then(|| WaitingGang {
            app: self.head.submission.id.clone(),
            is_repair,
            since: self.head.submitted_at,
            // A partial repair would hold some members and wait for others, so repairs are atomic.
            mode: match self.head.submission.policy.admission {
                Admission::Partial if !is_repair => Admission::Partial,
                _ => Admission::Atomic,
            },
            queue_path,
            wanted,
        })
    }

    /// Binds placements to pending placeholders. A repair creates new placeholders.
    pub fn bind(&mut self, placed: &[MemberPlacement], now: Timestamp) -> Step {
        let mut step = Step::default();
        let is_repair = !self.lost_members().is_empty();
        for placement in placed {
            for _ in 0..placement.count {
                let result = if is_repair {
                    self.repair_member(placement, now, &mut step)
                } else {
                    self.bind_one(placement, now, &mut step)
                };
                if let Err(refused) = result {
                    step.refusal = Some(refused);
                    return step;
                }
            }
        }
        step.refusal = self.check_minimum(now, &mut step).err();
        step
    }

    /// Gives a pending placeholder of the group its allocation.
    fn bind_one(
        &mut self,
        placement: &MemberPlacement,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let mut asks = self.pending.values();
        let ask = asks.find(|it| it.placeholder && it.group.as_ref() == Some(&placement.group));
        let Some(key) = ask.map(|ask| ask.key.clone()) else {
            return Err(self.refusal(Reason::UnknownTask, &"Bind"));
        };
        self.on_placed(&key, placement.node.clone(), now, step)
    }

    /// Creates a placeholder with an allocation for a lost member.
    fn repair_member(
        &mut self,
        placement: &MemberPlacement,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let submission = &self.head.submission;
        let mut groups = submission.task_groups.iter();
        let Some(group) = groups.find(|it| it.name == placement.group) else {
            return Err(self.refusal(Reason::UnknownTask, &"Repair"));
        };
        // The id has a limited length, so long application ids are shortened.
        let app: String = submission.id.as_str().chars().take(40).collect();
        let key = TaskId::new(format!("tr-{app}-{:010}", self.head.repairs))
            .expect("a prefix, a valid id and a number form a valid id");
        let ask = Task::placeholder(key.clone(), group, now).ask();
        self.head.repairs += 1;
        self.update_group(&ask, |group| group.count += 1);
        // The owner gets the full waiting time again to send a task.
        let due = now.plus_ms(self.head.submission.policy.placeholders_wait_ms());
        self.head.timers.arm(Timer::Placeholder, due);
        step.send(ToFront::Repaired {
            ask: ask.clone(),
            node: placement.node.clone(),
        });
        let allocation = Allocation {
            ask,
            node: placement.node.clone(),
            since: now,
            released: None,
            successor: None,
        };
        self.allocations.insert(key, allocation);
        Ok(())
    }

    /// Detects whether the gang became complete, lost its minimum, or regained it.
    pub(super) fn check_minimum(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        let groups = &self.head.submission.task_groups;
        if !self.head.formed && !groups.is_empty() {
            let is_complete = groups.iter().all(|group| self.missing_members(group) == 0);
            if is_complete && !self.allocations.is_empty() {
                self.head.formed = true;
                self.head.timers.clear(Timer::GangAdmission);
            }
        }
        if self.lost_members().is_empty() {
            self.head.timers.clear(Timer::GangRepair);
            return Ok(());
        }
        match self.head.submission.policy.when_short {
            WhenShort::ReleaseWhole => self.release_gang(now, step),
            WhenShort::Repair { grace_ms } => {
                if self.head.timers.due(Timer::GangRepair).is_none() {
                    let due = now.plus_ms(grace_ms);
                    self.head.timers.arm(Timer::GangRepair, due);
                }
                Ok(())
            }
        }
    }

    /// Returns the groups that lack members, or whose lost members have no successor.
    fn incomplete_groups(&self) -> Vec<String> {
        let lost: Vec<GroupName> = self.lost_members().into_iter().map(|it| it.group).collect();
        let groups = self.head.groups.iter();
        let incomplete = groups.filter(|(name, group)| group.owed > 0 || lost.contains(name));
        incomplete.map(|(name, _)| name.to_string()).collect()
    }

    /// Releases the gang as one event (I13).
    pub(super) fn release_gang(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        let message = format!(
            "{GANG_SHORT}: members lost of {}",
            self.incomplete_groups().join(", ")
        );
        self.head.message = Some(message);
        self.head.timers.clear(Timer::GangRepair);
        self.fire(Event::Fail, now, step)?;
        for allocation in self.allocations.values_mut() {
            allocation.successor = None;
        }
        self.request_release(|_| true, now, step)
    }

    /// Requests the release of allocations, then withdraws asks. Allocations count until the
    /// confirmation.
    pub(super) fn request_release(
        &mut self,
        is_selected: impl Fn(&Ask) -> bool,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let termination = Termination::Timeout;
        let mut keys = Vec::new();
        for (key, allocation) in &mut self.allocations {
            if allocation.released.is_none() && is_selected(&allocation.ask) {
                allocation.released = Some(termination);
                keys.push(key.clone());
            }
        }
        if !keys.is_empty() {
            step.send(ToFront::Release { keys, termination });
        }
        let waiting = self.pending.values().filter(|ask| is_selected(ask));
        let keys: Vec<TaskId> = waiting.map(|ask| ask.key.clone()).collect();
        for key in &keys {
            let ask = self.pending.remove(key).expect("it is in the list");
            if ask.placeholder {
                self.update_group(&ask, |group| group.timedout += 1);
            }
        }
        if !keys.is_empty() {
            step.send(ToFront::ReleaseAsks { keys, termination });
        }
        self.advance_state(now, step)
    }
}
