//! The work of one user in one class, grouped by equal demand. An item is one piece of work. Items
//! have sequence numbers by age, and a number stays the same when an item moves to another group.

use super::{
    entitlement_runs::{EntitlementRuns, Run},
    settings::FairShareSettings,
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
    /// Number of processes when the computation begins.
    current: u64,
}

/// Group number of work whose demand was not yet read.
const UNREAD: u32 = u32::MAX;

/// Slots by work. A slot is valid once all work of its user was read.
pub(super) type Slots = TypedVec<WorkIx, Slot>;

/// Inputs of the entitlement of one work item, in numbers of processes except `process_quanta`.
/// The three caps are those of [`Cap`](crate::index::growth_cap::Cap).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntitlementInputs {
    pub process_quanta: u64,
    pub base: u64,
    pub steady: u64,
    pub now: u64,
    /// Number of processes on closed nodes. These nodes take no new work and are in no hole table.
    pub resting: u64,
}

impl EntitlementInputs {
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

    /// Returns the limit of processes on open nodes when the computation begins.
    pub fn first_limit(&self, settings: &FairShareSettings) -> u64 {
        if settings.steady {
            self.allowance(self.steady)
        } else {
            self.allowance(self.now)
        }
    }

    /// Returns the part of a cap that is left after the processes on closed nodes.
    pub fn allowance(&self, cap: u64) -> u64 {
        cap.saturating_sub(self.resting)
    }

    /// Returns the number of processes on closed nodes that count towards the cap.
    fn processes_on_closed_nodes(&self) -> u64 {
        self.resting.min(self.now)
    }

    /// Returns the quanta of work that has this many processes.
    fn demand_and_holdings(&self, current: u64) -> DemandAndHoldings {
        DemandAndHoldings {
            demand: u128::from(self.now.saturating_mul(self.process_quanta)),
            holdings: u128::from(current.saturating_mul(self.process_quanta)),
        }
    }
}

/// Work with equal demand.
pub(super) struct Group {
    pub inputs: EntitlementInputs,
    /// Items of the group by sequence number, and so by age.
    pub members: Vec<Member>,
}

impl Group {
    /// Returns the position of this sequence number, or where it would be inserted.
    fn position(&self, seq: u32) -> Result<usize, usize> {
        self.members.binary_search_by_key(&seq, |member| member.seq)
    }
}

#[derive(Default)]
pub(super) struct WorkGroups {
    /// Groups by number. Some may be empty.
    pub groups: Vec<Group>,
    /// Entitlements of all items.
    entitlements: EntitlementRuns,
    /// Numbers of the groups that are not empty, sorted by their demand.
    by_inputs: Vec<u32>,
    free_groups: Vec<u32>,
    /// Sequence number of the next item.
    next_seq: u32,
    /// Number of items.
    len: usize,
    /// Demand and holdings of all items.
    pub totals: DemandAndHoldings,
}

impl WorkGroups {
    /// Builds the groups from all work, in the order of age.
    pub fn new(
        state: &RoundState,
        work_by_age: impl Iterator<Item = WorkIx>,
        slots: &mut Slots,
    ) -> Self {
        let mut groups = Self::default();
        if slots.len() < state.work.len() {
            slots.resize(state.work.len(), Slot::default());
        }
        for (seq, work) in (0..).zip(work_by_age) {
            let (inputs, current) = (
                EntitlementInputs::new(state, work),
                state.work[work].current,
            );
            let group = groups.find_or_add_group(inputs);
            slots[work] = Slot {
                group,
                seq,
                current,
            };
            groups.groups[group as usize]
                .members
                .push(Member { seq, work });
            groups.totals.add(inputs.demand_and_holdings(current));
            (groups.next_seq, groups.len) = (seq + 1, groups.len + 1);
        }
        let entitlements = (0..).zip(&groups.groups).flat_map(|(group_number, group)| {
            let entitlement =
                move |member: &Member| (group_number, state.work[member.work].entitlement);
            group.members.iter().map(entitlement)
        });
        groups.entitlements = EntitlementRuns::new(entitlements);
        groups
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if an item can be appended at this position. Only the youngest item can. For
    /// any other item, the groups must be rebuilt.
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

    /// Removes the item of a slot and returns its entitlement.
    fn remove_slot(&mut self, slot: Slot) -> Option<u64> {
        let group = self.groups.get_mut(slot.group as usize)?;
        let position = group.position(slot.seq).ok()?;
        group.members.remove(position);
        self.totals
            .remove(group.inputs.demand_and_holdings(slot.current));
        if group.members.is_empty() {
            self.by_inputs.retain(|other| *other != slot.group);
            self.free_groups.push(slot.group);
        }
        self.entitlements.remove(slot.group, to_u32(position))
    }

    /// Reads the demand and holdings of an item. Returns its slot, and whether its group changed.
    pub fn update(&mut self, state: &RoundState, work: WorkIx, slot: Slot) -> (Slot, bool) {
        let (inputs, current) = (
            EntitlementInputs::new(state, work),
            state.work[work].current,
        );
        let group = self.groups.get(slot.group as usize);
        if group.is_some_and(|group| group.inputs == inputs) {
            self.totals.remove(inputs.demand_and_holdings(slot.current));
            self.totals.add(inputs.demand_and_holdings(current));
            return (Slot { current, ..slot }, false);
        }
        let entitlement = self.remove_slot(slot);
        let entitlement = entitlement.unwrap_or_else(|| state.work[work].entitlement);
        let slot = Slot {
            group: self.find_or_add_group(inputs),
            current,
            ..slot
        };
        self.insert(work, slot, entitlement);
        self.totals.add(inputs.demand_and_holdings(current));
        (slot, true)
    }

    /// Inserts an item into the group of its slot.
    fn insert(&mut self, work: WorkIx, slot: Slot, entitlement: u64) {
        let group = &mut self.groups[slot.group as usize];
        let (Ok(position) | Err(position)) = group.position(slot.seq);
        let seq = slot.seq;
        group.members.insert(position, Member { seq, work });
        self.entitlements
            .insert(slot.group, to_u32(position), entitlement);
    }

    /// Sets the entitlements. `open_runs` has those on open nodes, by group and age. Processes on
    /// closed nodes are added. Calls `report` for each item whose total changed, with that total.
    pub fn set_entitlements(
        &mut self,
        open_runs: impl ExactSizeIterator<Item = Run>,
        mut report: impl FnMut(WorkIx, u64),
    ) {
        // The capacity has two spare runs, because an item appended later changes at most two runs.
        let mut runs = Vec::with_capacity(open_runs.len() + 2);
        runs.extend(open_runs.map(|run| {
            let inputs = &self.groups[run.group as usize].inputs;
            let entitlement = run.entitlement + inputs.processes_on_closed_nodes();
            Run { entitlement, ..run }
        }));
        let groups = &self.groups;
        self.entitlements
            .replace_all(runs, |(group, position), entitlement| {
                let member = groups[group as usize].members[position as usize];
                report(member.work, entitlement);
            });
    }

    /// Asserts that each item is in one group, with its demand, holdings and entitlement. Sequence
    /// numbers must ascend by age.
    #[cfg(test)]
    pub fn assert_equals_rebuilt(&self, state: &RoundState, work_by_age: &[WorkIx], slots: &Slots) {
        let seqs: Vec<u32> = work_by_age.iter().map(|work| slots[*work].seq).collect();
        assert!(seqs.is_sorted_by(|a, b| a < b), "sequence numbers by age");
        let (mut members, mut totals) = (0, DemandAndHoldings::default());
        for (group_number, group) in (0..).zip(&self.groups) {
            members += group.members.len();
            assert!(group.members.is_sorted_by(|a, b| a.seq < b.seq));
            assert_eq!(
                group.members.len(),
                self.entitlements.iter_group(group_number).count()
            );
        }
        let inputs = |group_number: &u32| self.groups[*group_number as usize].inputs;
        assert!(self.by_inputs.is_sorted_by_key(inputs), "groups by demand");
        assert_eq!((members, self.len), (work_by_age.len(), work_by_age.len()));
        for work in work_by_age {
            let group_number = slots[*work].group;
            let group = &self.groups[group_number as usize];
            let position = group.position(slots[*work].seq);
            let position = position.expect("a slot in use");
            let member = group.members[position].work;
            let work_state = &state.work[*work];
            let actual = (
                member,
                slots[*work].current,
                self.entitlements.iter_group(group_number).nth(position),
            );
            assert_eq!(
                actual,
                (*work, work_state.current, Some(work_state.entitlement))
            );
            assert!(
                group.inputs == EntitlementInputs::new(state, *work),
                "demand of the item"
            );
            totals.add(group.inputs.demand_and_holdings(work_state.current));
        }
        assert_eq!(self.totals, totals);
    }

    fn find_or_add_group(&mut self, inputs: EntitlementInputs) -> u32 {
        let inputs_of = |group_number: &u32| self.groups[*group_number as usize].inputs;
        let position = match self.by_inputs.binary_search_by_key(&inputs, inputs_of) {
            Ok(position) => return self.by_inputs[position],
            Err(position) => position,
        };
        let group = self.free_groups.pop().unwrap_or_else(|| {
            let members = Vec::new();
            self.groups.push(Group { inputs, members });
            to_u32(self.groups.len() - 1)
        });
        self.groups[group as usize].inputs = inputs;
        self.by_inputs.insert(position, group);
        group
    }
}

/// Converts a number of groups or items. The number fits, because work has 32-bit indices.
pub(super) fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Demand and holdings, in quanta.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DemandAndHoldings {
    pub demand: u128,
    pub holdings: u128,
}

impl DemandAndHoldings {
    pub fn add(&mut self, other: Self) {
        self.demand += other.demand;
        self.holdings += other.holdings;
    }

    pub fn remove(&mut self, other: Self) {
        self.demand -= other.demand;
        self.holdings -= other.holdings;
    }
}
