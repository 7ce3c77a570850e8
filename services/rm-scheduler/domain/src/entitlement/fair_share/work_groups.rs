//! One user's work in one class, grouped by equal demand. Items are numbered by age, so inserting
//! one moves no other.

use super::{
    count_pass::CountPass,
    count_runs::{CountRuns, Run},
};
use crate::{
    entitlement::apportion::Member,
    ids::{Ix, TypedVec, WorkIx},
    state::RoundState,
};

/// Position of a work item: its group and its sequence number there.
#[derive(Clone, Copy, Default)]
pub(super) struct Slot {
    group: u32,
    seq: u32,
    /// Number of processes when the count begins.
    current: u64,
}

/// Group number of work whose demand was not yet read.
const UNREAD: u32 = u32::MAX;

/// Slots by work. They are valid for work of users that are known.
pub(super) type Slots = TypedVec<WorkIx, Slot>;

/// Inputs of the count of one work item.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CountInputs {
    pub process_quanta: u64,
    pub base: u64,
    pub steady: u64,
    pub now: u64,
    /// Number of processes on closed nodes, which are outside the hole tables.
    pub resting: u64,
}

impl CountInputs {
    fn new(state: &RoundState, work: WorkIx) -> Self {
        let work_state = &state.work[work];
        Self {
            process_quanta: work_state.process_quanta,
            base: work_state.cap.base,
            steady: work_state.cap.steady,
            now: work_state.cap.now,
            resting: work_state.resting,
        }
    }

    pub fn first_limit(&self, pass: &CountPass) -> u64 {
        if pass.steady {
            self.allowance(self.steady)
        } else {
            self.allowance(self.now)
        }
    }

    /// Returns the part of a cap that is left after the processes outside the tables.
    pub fn allowance(&self, cap: u64) -> u64 {
        cap.saturating_sub(self.resting)
    }

    /// Returns the number of processes outside the tables that count.
    fn outside(&self) -> u64 {
        self.resting.min(self.now)
    }

    /// Returns the quanta of work that has this many processes.
    fn quanta(&self, current: u64) -> Quanta {
        Quanta {
            wants: u128::from(self.now.saturating_mul(self.process_quanta)),
            has: u128::from(current.saturating_mul(self.process_quanta)),
        }
    }
}

/// Work with equal demand.
pub(super) struct Group {
    pub inputs: CountInputs,
    /// Items of the group by sequence number, and so by age.
    pub members: Vec<Member>,
}

impl Group {
    /// Returns the position of this sequence number, or where it would be inserted.
    fn position(&self, seq: u32) -> Result<usize, usize> {
        self.members.binary_search_by_key(&seq, |one| one.seq)
    }
}

#[derive(Default)]
pub(super) struct WorkGroups {
    /// Groups by number. Some may be empty.
    pub groups: Vec<Group>,
    /// Entitlements of all items.
    counts: CountRuns,
    /// Numbers of the groups that are not empty, sorted by their demand.
    by_inputs: Vec<u32>,
    free_groups: Vec<u32>,
    /// Sequence number of the next item.
    next_seq: u32,
    /// Number of items.
    len: usize,
    /// Demand and holdings of all items.
    pub quanta: Quanta,
}

impl WorkGroups {
    /// Builds the groups from all work, in the order of age.
    pub fn new(state: &RoundState, all: impl Iterator<Item = WorkIx>, slots: &mut Slots) -> Self {
        let mut groups = Self::default();
        if slots.len() < state.work.len() {
            slots.resize(state.work.len(), Slot::default());
        }
        for (seq, work) in (0..).zip(all) {
            let (inputs, current) = (CountInputs::new(state, work), state.work[work].current);
            let group = groups.group(inputs);
            slots[work] = Slot {
                group,
                seq,
                current,
            };
            groups.groups[group as usize]
                .members
                .push(Member { seq, work });
            groups.quanta.add(inputs.quanta(current));
            (groups.next_seq, groups.len) = (seq + 1, groups.len + 1);
        }
        let each = (0..).zip(&groups.groups).flat_map(|(number, group)| {
            let counted = move |one: &Member| (number, state.work[one.work].entitlement);
            group.members.iter().map(counted)
        });
        groups.counts = CountRuns::new(each);
        groups
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether an item can be appended. Only the youngest item can; for others, the groups
    /// are rebuilt.
    pub fn can_append(&self, position: usize) -> bool {
        position == self.len && self.next_seq < u32::MAX - 1
    }

    /// Appends the youngest item. Its demand is read later.
    pub fn append(&mut self, work: WorkIx, slots: &mut Slots) {
        if slots.len() <= work.index() {
            slots.resize(work.index() + 1, Slot::default());
        }
        slots[work] = Slot {
            group: UNREAD,
            seq: self.next_seq,
            current: 0,
        };
        (self.next_seq, self.len) = (self.next_seq + 1, self.len + 1);
    }

    pub fn remove(&mut self, work: WorkIx, slots: &Slots) {
        self.len -= 1;
        self.remove_slot(slots[work]);
    }

    /// Removes the item of a slot and returns its count.
    fn remove_slot(&mut self, slot: Slot) -> Option<u64> {
        let group = self.groups.get_mut(slot.group as usize)?;
        let position = group.position(slot.seq).ok()?;
        group.members.remove(position);
        self.quanta.remove(group.inputs.quanta(slot.current));
        if group.members.is_empty() {
            self.by_inputs.retain(|other| *other != slot.group);
            self.free_groups.push(slot.group);
        }
        self.counts.remove(slot.group, number(position))
    }

    /// Reads the demand and holdings of an item. Returns its slot, and whether its group changed.
    pub fn update(&mut self, state: &RoundState, work: WorkIx, slot: Slot) -> (Slot, bool) {
        let (inputs, current) = (CountInputs::new(state, work), state.work[work].current);
        let group = self.groups.get(slot.group as usize);
        if group.is_some_and(|group| group.inputs == inputs) {
            self.quanta.remove(inputs.quanta(slot.current));
            self.quanta.add(inputs.quanta(current));
            return (Slot { current, ..slot }, false);
        }
        let counts = self.remove_slot(slot);
        let counts = counts.unwrap_or_else(|| state.work[work].entitlement);
        let slot = Slot {
            group: self.group(inputs),
            current,
            ..slot
        };
        self.insert(work, slot, counts);
        self.quanta.add(inputs.quanta(current));
        (slot, true)
    }

    /// Inserts an item into the group of its slot.
    fn insert(&mut self, work: WorkIx, slot: Slot, counted: u64) {
        let group = &mut self.groups[slot.group as usize];
        let (Ok(position) | Err(position)) = group.position(slot.seq);
        let seq = slot.seq;
        group.members.insert(position, Member { seq, work });
        self.counts.insert(slot.group, number(position), counted);
    }

    /// Sets the counts inside the tables, by group and age. Calls `report` for each item whose
    /// total count changed.
    pub fn set_counts(
        &mut self,
        inside: impl ExactSizeIterator<Item = Run>,
        mut report: impl FnMut(WorkIx, u64),
    ) {
        // There are two spare places, because an item appended later changes at most two runs.
        let mut runs = Vec::with_capacity(inside.len() + 2);
        runs.extend(inside.map(|run| {
            let inputs = &self.groups[run.group as usize].inputs;
            let counted = run.counted + inputs.outside();
            Run { counted, ..run }
        }));
        let groups = &self.groups;
        self.counts.renew(runs, |(group, position), counted| {
            let member = groups[group as usize].members[position as usize];
            report(member.work, counted);
        });
    }

    /// Asserts that each item is in one group, with its demand, holdings and count. Sequence
    /// numbers must ascend by age.
    #[cfg(test)]
    pub fn assert_is(&self, state: &RoundState, all: &[WorkIx], slots: &Slots) {
        let seqs: Vec<u32> = all.iter().map(|work| slots[*work].seq).collect();
        assert!(seqs.is_sorted_by(|a, b| a < b), "turns by age");
        let (mut members, mut quanta) = (0, Quanta::default());
        for (number, group) in (0..).zip(&self.groups) {
            members += group.members.len();
            assert!(group.members.is_sorted_by(|a, b| a.seq < b.seq));
            assert_eq!(group.members.len(), self.counts.each(number).count());
        }
        let inputs = |number: &u32| self.groups[*number as usize].inputs;
        assert!(
            self.by_inputs.is_sorted_by_key(inputs),
            "groups by what they ask for"
        );
        assert_eq!((members, self.len), (all.len(), all.len()));
        for work in all {
            let number = slots[*work].group;
            let group = &self.groups[number as usize];
            let position = group.position(slots[*work].seq);
            let position = position.expect("a seat that is taken");
            let member = group.members[position].work;
            let work_state = &state.work[*work];
            let known = (
                member,
                slots[*work].current,
                self.counts.each(number).nth(position),
            );
            assert_eq!(
                known,
                (*work, work_state.current, Some(work_state.entitlement))
            );
            assert!(
                group.inputs == CountInputs::new(state, *work),
                "what it asks for"
            );
            quanta.add(group.inputs.quanta(work_state.current));
        }
        assert_eq!(self.quanta, quanta);
    }

    fn group(&mut self, inputs: CountInputs) -> u32 {
        let inputs_of = |number: &u32| self.groups[*number as usize].inputs;
        let position = match self.by_inputs.binary_search_by_key(&inputs, inputs_of) {
            Ok(position) => return self.by_inputs[position],
            Err(position) => position,
        };
        let group = self.free_groups.pop().unwrap_or_else(|| {
            let members = Vec::new();
            self.groups.push(Group { inputs, members });
            number(self.groups.len() - 1)
        });
        self.groups[group as usize].inputs = inputs;
        self.by_inputs.insert(position, group);
        group
    }
}

/// Converts a number of groups or items, which are at most as many as work items with 32-bit
/// numbers.
pub(super) fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Demand and holdings, in quanta.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quanta {
    pub wants: u128,
    pub has: u128,
}

impl Quanta {
    pub fn add(&mut self, other: Self) {
        self.wants += other.wants;
        self.has += other.has;
    }

    pub fn remove(&mut self, other: Self) {
        self.wants -= other.wants;
        self.has -= other.has;
    }
}
