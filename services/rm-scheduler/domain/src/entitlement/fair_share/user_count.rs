//! The count of one user in one class, by groups of equal demand. It replays the last count. While
//! each step grants the same amounts, the counts of the last round stay valid.

use std::ops::Range;

use super::{
    count_pass::CountPass,
    count_runs::Run,
    work_groups::{CountInputs, Quanta, Slot, Slots, WorkGroups, number},
};
use crate::{
    collections::id_list::IdList,
    entitlement::apportion::{self, Band, Claims},
    ids::WorkIx,
    index::WorkListEdit,
    input::snapshot::Standing,
    state::{Amounts, RoundState},
};

#[derive(Default)]
pub(super) struct UserCount {
    groups: WorkGroups,
    /// True if `groups` has all work of the user.
    is_known: bool,
    /// Work of this count in runs, by group and age.
    runs: Vec<CountRun>,
    /// Steps of the last count.
    steps: Vec<CountStep>,
    /// Number of steps of this count so far.
    step_count: usize,
    /// True if `runs` reflects the steps of this count. False while the last count is replayed.
    is_live: bool,
    /// Demand at the beginning of the count.
    wanted: Amounts,
    /// Total demand, by which users are sorted.
    pub total: u64,
}

struct CountStep {
    /// Granted amounts. `None` if the whole demand is granted.
    given: Option<Amounts>,
    /// Demand after the step. `None` if no limit changed.
    wants: Option<Amounts>,
}

/// Adjacent items of a group with equal counts.
#[derive(Clone, Copy)]
struct CountRun {
    group: u32,
    from: u32,
    len: u32,
    /// Largest number of processes for each item.
    limit: u64,
    counted: u64,
}

impl CountRun {
    fn inputs<'c>(&self, groups: &'c WorkGroups) -> &'c CountInputs {
        &groups.groups[self.group as usize].inputs
    }

    /// Returns the group and the position of the first item.
    fn position(&self) -> (u32, u32) {
        (self.group, self.from)
    }

    /// Returns the positions of the items in the group.
    fn positions(&self) -> Range<usize> {
        let from = self.from as usize;
        from..from + self.len as usize
    }
}

impl UserCount {
    pub fn quanta(&self) -> Quanta {
        self.groups.quanta
    }

    /// Returns true if the user is known to have work.
    pub fn has_some(&self) -> bool {
        self.is_known && !self.groups.is_empty()
    }

    pub fn splice(&mut self, splice: &WorkListEdit, slots: &mut Slots) {
        if !self.is_known {
            return;
        }
        self.steps.clear();
        if !splice.is_insertion {
            self.groups.remove(splice.work, slots);
        } else if self.groups.can_append(splice.position) {
            self.groups.append(splice.work, slots);
        } else {
            // The groups are rebuilt, and all items get new sequence numbers.
            self.is_known = false;
        }
    }

    /// Reads all work of the user, unless it is known.
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

    /// Reads these items again and returns their slots.
    pub fn update(
        &mut self,
        state: &RoundState,
        work: impl Iterator<Item = WorkIx>,
        slots: &Slots,
    ) -> impl Iterator<Item = (WorkIx, Slot)> {
        work.map(|work| {
            let (slot, is_another) = self.groups.update(state, work, slots[work]);
            if is_another {
                self.steps.clear();
            }
            (work, slot)
        })
    }

    /// Asserts that the stored groups equal groups built from all work.
    #[cfg(test)]
    pub fn assert_known(&self, state: &RoundState, work: &IdList<WorkIx>, slots: &Slots) {
        let work: Vec<WorkIx> = work.iter().collect();
        self.groups.assert_is(state, &work, slots);
    }

    /// Begins a count. Users are sorted by their total demand. Steady counts use the demand without
    /// growth caps, which does not depend on holdings.
    pub fn begin(&mut self, pass: &CountPass) {
        self.step_count = 0;
        self.is_live = self.steps.is_empty();
        if self.is_live {
            self.start(pass);
            self.total = 0;
            self.wanted.clear();
            for run in &self.runs {
                let inputs = run.inputs(&self.groups);
                let len = u64::from(run.len);
                let most = if pass.steady { inputs.base } else { run.limit };
                self.total = self.total.saturating_add(most.saturating_mul(len));
                self.wanted
                    .add(inputs.process_quanta, run.limit.saturating_mul(len));
            }
        }
    }

    /// Puts all work in runs with its first limit.
    fn start(&mut self, pass: &CountPass) {
        self.runs.clear();
        let groups = (0..).zip(&self.groups.groups);
        let groups = groups.filter(|(_, group)| !group.members.is_empty());
        self.runs.extend(groups.map(|(at, group)| CountRun {
            group: at,
            from: 0,
            len: number(group.members.len()),
            limit: group.inputs.first_limit(pass),
            counted: 0,
        }));
    }

    fn add_limits(&self, want: &mut Amounts) {
        for run in &self.runs {
            let count = run.limit.saturating_mul(run.len.into());
            want.add(run.inputs(&self.groups).process_quanta, count);
        }
    }

    pub fn wants(&self) -> &Amounts {
        let mut past = self.steps[..self.step_count].iter().rev();
        let moved = past.find_map(|step| step.wants.as_ref());
        moved.unwrap_or(&self.wanted)
    }

    /// Divides the grant among the work, and then holds work to its cap. `None` grants the whole
    /// demand. Returns true if the demand changed.
    pub fn step(&mut self, pass: &CountPass, given: Option<Amounts>) -> bool {
        let given = given.filter(|given| given != self.wants());
        let at = self.step_count;
        self.step_count += 1;
        if !self.is_live {
            let known = self.steps.get(at).filter(|step| step.given == given);
            if let Some(step) = known {
                return step.wants.is_some();
            }
            self.go_back(pass, at);
        }
        let moved = self.advance(pass, at, given.as_ref());
        let wants = moved.then(|| {
            let mut wants = Amounts::with_capacity(self.wanted.size_count());
            self.add_limits(&mut wants);
            wants
        });
        self.steps.push(CountStep { given, wants });
        moved
    }

    /// Restores the runs to their state after this many steps.
    fn go_back(&mut self, pass: &CountPass, steps: usize) {
        let past = std::mem::take(&mut self.steps);
        self.is_live = true;
        self.start(pass);
        for (at, step) in past.into_iter().take(steps).enumerate() {
            self.advance(pass, at, step.given.as_ref());
            self.steps.push(step);
        }
    }

    fn advance(&mut self, pass: &CountPass, at: usize, given: Option<&Amounts>) -> bool {
        let before = at.checked_sub(1).map(|before| &self.steps[before]);
        // Equal limits and an equal grant give equal counts.
        let is_same =
            before.is_some_and(|step| step.wants.is_none() && step.given.as_ref() == given);
        match given {
            _ if is_same => {}
            Some(given) => self.divide(pass, given),
            // Each process has a hole of its size.
            None => {
                let runs = self.runs.iter_mut();
                runs.for_each(|run| run.counted = run.limit);
            }
        }
        let all = CountPass::holds_all(at);
        pass.steady && (all || !is_same) && self.hold_to_caps(all)
    }

    /// Divides the grant among work, by age, then id.
    fn divide(&mut self, pass: &CountPass, given: &Amounts) {
        if pass.division.holes_among_rivals {
            self.divide_among_rivals(pass, given);
        } else {
            // Runs are joined regardless of the counts of the last step, which do not matter to
            // this one.
            self.join_neighbours(|_| 0);
            let groups = &self.groups;
            let bands = self.runs.iter().map(|run| {
                let group = &groups.groups[run.group as usize];
                let members = &group.members[run.positions()];
                let quanta = group.inputs.process_quanta;
                Band::new(run.group, run.from, members, quanta, run.limit)
            });
            let divided =
                apportion::divide(bands, given.as_holes(), pass.division.spread_remainders);
            let runs = divided.into_iter().map(|band| CountRun {
                group: band.owner,
                from: band.from,
                len: number(band.members.len()),
                limit: band.given + band.want,
                counted: band.given,
            });
            self.runs.clear();
            self.runs.extend(runs);
        }
        self.join_neighbours(|run| run.counted);
    }

    fn divide_among_rivals(&mut self, pass: &CountPass, given: &Amounts) {
        let groups = &self.groups.groups;
        let each = self.runs.iter().flat_map(|run| {
            let group = &groups[run.group as usize];
            run.positions().map(|from| {
                let one = CountRun {
                    from: number(from),
                    len: 1,
                    ..*run
                };
                (group.members[from].seq, group.inputs.process_quanta, one)
            })
        });
        let mut rows: Vec<(u32, u64, CountRun)> = each.collect();
        rows.sort_unstable_by_key(|(seq, ..)| *seq);
        let mut claims = Claims::default();
        for (_, quanta, row) in &rows {
            claims.add_entity(1, Standing::Even);
            claims.add_demand(*quanta, row.limit);
        }
        claims.apportion(given.as_holes(), pass.division);
        let counted = rows.into_iter().zip(claims.processes());
        let counted = counted.map(|((.., row), counted)| CountRun { counted, ..row });
        self.runs.clear();
        self.runs.extend(counted);
        self.runs.sort_unstable_by_key(CountRun::position);
    }

    /// Joins adjacent runs with equal limits and counts.
    fn join_neighbours(&mut self, counts: impl Fn(&CountRun) -> u64) {
        self.runs.dedup_by(|next, before| {
            let key = |run: &CountRun| (run.group, run.limit, counts(run));
            let same = key(next) == key(before);
            before.len += if same { next.len } else { 0 };
            same
        });
    }

    /// Holds work to its cap: all work, or only work that exceeds its cap. Returns true if any
    /// limit changed.
    fn hold_to_caps(&mut self, everybody: bool) -> bool {
        let mut exceeds = false;
        for run in &mut self.runs {
            let inputs = run.inputs(&self.groups);
            let cap = inputs.allowance(inputs.now);
            if run.counted > cap || everybody && run.limit > cap {
                run.limit = cap;
                exceeds = true;
            }
        }
        exceeds
    }

    /// Ends the count and writes changed entitlements into the state.
    pub fn end(&mut self, pass: &CountPass, state: &mut RoundState) {
        if self.steps.len() > self.step_count {
            self.go_back(pass, self.step_count);
        }
        if !self.is_live {
            return;
        }
        self.runs.sort_unstable_by_key(CountRun::position);
        let runs = self.runs.iter().map(|run| Run {
            group: run.group,
            len: run.len,
            counted: run.counted,
        });
        self.groups.set_counts(runs, |work, counted| {
            state.work.get_mut_untouched(work).entitlement = counted;
        });
    }
}
