//! The entitlements of the work of one user in one class. Work with equal demand forms a group, and
//! an item is one piece of work.
//!
//! A computation has one or more steps. Each step divides a grant among the work, and then limits
//! work to its cap. The steps of the last round are stored. A step of this round that grants the
//! same amounts as the stored step reuses its result.

use std::ops::Range;

use super::{
    entitlement_runs::Run,
    settings::FairShareSettings,
    work_groups::{DemandAndHoldings, EntitlementInputs, Slot, Slots, WorkGroups, to_u32},
};
use crate::{
    collections::id_list::IdList,
    entitlement::apportion::{self, Claims, EntityBatch},
    ids::WorkIx,
    index::WorkListEdit,
    input::snapshot::Standing,
    state::{ProcessCounts, RoundState},
};

#[derive(Default)]
pub(super) struct UserEntitlement {
    groups: WorkGroups,
    /// True if `groups` has all work of the user.
    is_known: bool,
    /// Results of this computation in runs of equal items, by group and age.
    runs: Vec<ItemRun>,
    /// Steps of the last computation.
    steps: Vec<DivisionStep>,
    /// Number of steps of this computation so far.
    step_count: usize,
    /// True if `runs` has the result of the steps so far. False while all steps reuse stored
    /// results.
    runs_are_current: bool,
    /// Demand at the beginning of the computation.
    initial_demand: ProcessCounts,
    /// Total demand, by which users are sorted.
    pub total: u64,
}

struct DivisionStep {
    /// Granted amounts. `None` if the whole demand is granted.
    grant: Option<ProcessCounts>,
    /// Demand after the step. `None` if no limit changed.
    demand: Option<ProcessCounts>,
}

/// Adjacent items of a group with equal limits and entitlements.
#[derive(Clone, Copy)]
struct ItemRun {
    group: u32,
    /// Position of the first item in the group.
    first: u32,
    len: u32,
    /// Largest number of processes for each item.
    limit: u64,
    entitlement: u64,
}

impl ItemRun {
    fn inputs<'c>(&self, groups: &'c WorkGroups) -> &'c EntitlementInputs {
        &groups.groups[self.group as usize].inputs
    }

    /// Returns the group and the position of the first item.
    fn position(&self) -> (u32, u32) {
        (self.group, self.first)
    }

    /// Returns the positions of the items in the group.
    fn positions(&self) -> Range<usize> {
        let first = self.first as usize;
        first..first + self.len as usize
    }
}

impl UserEntitlement {
    pub fn totals(&self) -> DemandAndHoldings {
        self.groups.totals
    }

    /// Returns true if the groups have all work of the user, and there is some.
    pub fn has_work(&self) -> bool {
        self.is_known && !self.groups.is_empty()
    }

    pub fn apply_edit(&mut self, edit: &WorkListEdit, slots: &mut Slots) {
        if !self.is_known {
            return;
        }
        self.steps.clear();
        if !edit.is_insertion {
            self.groups.remove(edit.work, slots);
        } else if self.groups.can_append(edit.position) {
            self.groups.append(edit.work, slots);
        } else {
            // The groups are rebuilt, and all items get new sequence numbers.
            self.is_known = false;
        }
    }

    /// Reads all work of the user, unless the groups already have it.
    pub fn read_all<'w>(
        &mut self,
        state: &RoundState,
        work: impl FnOnce() -> &'w IdList<WorkIx>,
        slots: &mut Slots,
    ) {
        if !self.is_known {
            self.steps.clear();
            self.groups = WorkGroups::new(state, work().iter(), slots);
            self.is_known = true;
        }
    }

    /// Reads the demand of this work again. Returns its slots.
    pub fn update(
        &mut self,
        state: &RoundState,
        work: impl Iterator<Item = WorkIx>,
        slots: &Slots,
    ) -> impl Iterator<Item = (WorkIx, Slot)> {
        work.map(|work| {
            let (slot, group_changed) = self.groups.update(state, work, slots[work]);
            if group_changed {
                self.steps.clear();
            }
            (work, slot)
        })
    }

    /// Asserts that the stored groups equal groups built from all work.
    #[cfg(test)]
    pub fn assert_groups_are_current(
        &self,
        state: &RoundState,
        work: &IdList<WorkIx>,
        slots: &Slots,
    ) {
        let work: Vec<WorkIx> = work.iter().collect();
        self.groups.assert_equals_rebuilt(state, &work, slots);
    }

    /// Begins a computation. Users are sorted by their total demand. With the `steady` setting,
    /// that is the demand without growth caps, which does not depend on holdings.
    pub fn begin(&mut self, settings: &FairShareSettings) {
        self.step_count = 0;
        self.runs_are_current = self.steps.is_empty();
        if self.runs_are_current {
            self.reset_runs(settings);
            self.total = 0;
            self.initial_demand.clear();
            for run in &self.runs {
                let inputs = run.inputs(&self.groups);
                let len = u64::from(run.len);
                let limit = if settings.steady {
                    inputs.base
                } else {
                    run.limit
                };
                self.total = self.total.saturating_add(limit.saturating_mul(len));
                self.initial_demand
                    .add(inputs.process_quanta, run.limit.saturating_mul(len));
            }
        }
    }

    /// Resets the runs to one for each group, with the limit of the first step.
    fn reset_runs(&mut self, settings: &FairShareSettings) {
        self.runs.clear();
        let groups = (0..).zip(&self.groups.groups);
        let groups = groups.filter(|(_, group)| !group.members.is_empty());
        self.runs
            .extend(groups.map(|(group_number, group)| ItemRun {
                group: group_number,
                first: 0,
                len: to_u32(group.members.len()),
                limit: group.inputs.first_limit(settings),
                entitlement: 0,
            }));
    }

    /// Adds the limits of all work to the demand.
    fn add_limits(&self, demand: &mut ProcessCounts) {
        for run in &self.runs {
            let count = run.limit.saturating_mul(run.len.into());
            demand.add(run.inputs(&self.groups).process_quanta, count);
        }
    }

    /// Returns the demand after the steps so far.
    pub fn demand(&self) -> &ProcessCounts {
        let mut past_steps = self.steps[..self.step_count].iter().rev();
        let last_change = past_steps.find_map(|step| step.demand.as_ref());
        last_change.unwrap_or(&self.initial_demand)
    }

    /// Divides the grant among the work, and then limits work to its cap. `None` grants the whole
    /// demand. Returns true if the demand changed.
    pub fn run_step(&mut self, settings: &FairShareSettings, grant: Option<ProcessCounts>) -> bool {
        let grant = grant.filter(|grant| grant != self.demand());
        let step_index = self.step_count;
        self.step_count += 1;
        if !self.runs_are_current {
            let stored_step = self
                .steps
                .get(step_index)
                .filter(|step| step.grant == grant);
            if let Some(step) = stored_step {
                return step.demand.is_some();
            }
            self.restore_to_step(settings, step_index);
        }
        let demand_changed = self.compute_step(settings, step_index, grant.as_ref());
        let demand = demand_changed.then(|| {
            let mut demand = ProcessCounts::with_capacity(self.initial_demand.size_count());
            self.add_limits(&mut demand);
            demand
        });
        self.steps.push(DivisionStep { grant, demand });
        demand_changed
    }

    /// Restores the runs to their state after this many steps.
    fn restore_to_step(&mut self, settings: &FairShareSettings, step_count: usize) {
        let past_steps = std::mem::take(&mut self.steps);
        self.runs_are_current = true;
        self.reset_runs(settings);
        for (step_index, step) in past_steps.into_iter().take(step_count).enumerate() {
            self.compute_step(settings, step_index, step.grant.as_ref());
            self.steps.push(step);
        }
    }

    /// Computes one step. Returns true if the demand changed.
    fn compute_step(
        &mut self,
        settings: &FairShareSettings,
        step_index: usize,
        grant: Option<&ProcessCounts>,
    ) -> bool {
        let previous = step_index.checked_sub(1).map(|index| &self.steps[index]);
        // Equal limits and an equal grant give equal entitlements.
        let is_same =
            previous.is_some_and(|step| step.demand.is_none() && step.grant.as_ref() == grant);
        match grant {
            _ if is_same => {}
            Some(grant) => self.divide(settings, grant),
            // Each process has a hole of its size.
            None => {
                let runs = self.runs.iter_mut();
                runs.for_each(|run| run.entitlement = run.limit);
            }
        }
        let all_work = FairShareSettings::caps_all_work(step_index);
        settings.steady && (all_work || !is_same) && self.limit_to_caps(all_work)
    }

    /// Divides the grant among work, by age, then id.
    fn divide(&mut self, settings: &FairShareSettings, grant: &ProcessCounts) {
        if settings.division.holes_among_rivals {
            self.divide_among_rivals(settings, grant);
        } else {
            // Runs are merged regardless of the entitlements of the last step, which do not matter
            // to this one.
            self.merge_neighbours(|_| 0);
            let groups = &self.groups;
            let batches = self.runs.iter().map(|run| {
                let group = &groups.groups[run.group as usize];
                let members = &group.members[run.positions()];
                let process_quanta = group.inputs.process_quanta;
                EntityBatch::new(run.group, run.first, members, process_quanta, run.limit)
            });
            let divided = apportion::divide(
                batches,
                grant.as_holes(),
                settings.division.spread_remainders,
            );
            let runs = divided.into_iter().map(|batch| ItemRun {
                group: batch.owner,
                first: batch.first_position,
                len: to_u32(batch.members.len()),
                limit: batch.granted + batch.wanted,
                entitlement: batch.granted,
            });
            self.runs.clear();
            self.runs.extend(runs);
        }
        self.merge_neighbours(|run| run.entitlement);
    }

    /// Divides the grant item by item, because items of one group can then get different holes.
    fn divide_among_rivals(&mut self, settings: &FairShareSettings, grant: &ProcessCounts) {
        let groups = &self.groups.groups;
        let items = self.runs.iter().flat_map(|run| {
            let group = &groups[run.group as usize];
            run.positions().map(|position| {
                let item = ItemRun {
                    first: to_u32(position),
                    len: 1,
                    ..*run
                };
                (
                    group.members[position].seq,
                    group.inputs.process_quanta,
                    item,
                )
            })
        });
        let mut items: Vec<(u32, u64, ItemRun)> = items.collect();
        items.sort_unstable_by_key(|(seq, ..)| *seq);
        let mut claims = Claims::default();
        for (_, process_quanta, item) in &items {
            claims.add_entity(1, Standing::Even);
            claims.add_demand(*process_quanta, item.limit);
        }
        claims.apportion(grant.as_holes(), settings.division);
        let entitled = items.into_iter().zip(claims.granted_processes());
        let entitled = entitled.map(|((.., item), entitlement)| ItemRun {
            entitlement,
            ..item
        });
        self.runs.clear();
        self.runs.extend(entitled);
        self.runs.sort_unstable_by_key(ItemRun::position);
    }

    /// Merges adjacent runs with equal limits and equal values of `key_of`.
    fn merge_neighbours(&mut self, key_of: impl Fn(&ItemRun) -> u64) {
        self.runs.dedup_by(|next, previous| {
            let key = |run: &ItemRun| (run.group, run.limit, key_of(run));
            let same = key(next) == key(previous);
            previous.len += if same { next.len } else { 0 };
            same
        });
    }

    /// Limits work to its cap: all work, or only work whose entitlement exceeds its cap. Returns
    /// true if any limit changed.
    fn limit_to_caps(&mut self, all_work: bool) -> bool {
        let mut limit_changed = false;
        for run in &mut self.runs {
            let inputs = run.inputs(&self.groups);
            let cap = inputs.allowance(inputs.now);
            if run.entitlement > cap || all_work && run.limit > cap {
                run.limit = cap;
                limit_changed = true;
            }
        }
        limit_changed
    }

    /// Ends the computation and writes changed entitlements into the state.
    pub fn finish(&mut self, settings: &FairShareSettings, state: &mut RoundState) {
        if self.steps.len() > self.step_count {
            self.restore_to_step(settings, self.step_count);
        }
        if !self.runs_are_current {
            return;
        }
        self.runs.sort_unstable_by_key(ItemRun::position);
        let runs = self.runs.iter().map(|run| Run {
            group: run.group,
            len: run.len,
            entitlement: run.entitlement,
        });
        self.groups.set_entitlements(runs, |work, entitlement| {
            state.work.get_mut_untouched(work).entitlement = entitlement;
        });
    }
}
