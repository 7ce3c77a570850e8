//! Work that must not share a host, or a fault domain, with others of its group: an active and what
//! stands by for it (container placement, 11.1).
//!
//! Whatever holds room counts, also what was told to leave: it runs until it is gone.

use super::Books;
use crate::index::Register;

impl Books<'_> {
    /// Another one of its group is there. Nodes without the label that keeps them apart cannot be
    /// told from each other, so nothing of the group goes there.
    pub fn is_parted(&self, at: usize, machine: usize) -> bool {
        self.parted(at, machine, |_| true)
    }

    /// The same once everything that leaves has left.
    pub fn stays_parted(&self, at: usize, machine: usize) -> bool {
        self.parted(at, machine, |share| !self.leaving[share])
    }

    /// By those of the shares that are held that count.
    fn parted(&self, at: usize, machine: usize, counts: impl Fn(usize) -> bool) -> bool {
        let Some(apart) = &self.demand(at).wishes().apart else {
            return false;
        };
        let label = apart.by_label.as_deref();
        if label.is_some_and(|label| domain(self.register, machine, label).is_none()) {
            return true;
        }
        let group = self.register.groups.get(&apart.group);
        let mut others = group.into_iter().flatten().filter(|other| **other != at);
        others.any(|other| self.stands_near(*other, machine, label, &counts))
    }

    fn stands_near(
        &self,
        other: usize,
        machine: usize,
        label: Option<&str>,
        counts: &impl Fn(usize) -> bool,
    ) -> bool {
        let near = |place: usize| match label {
            None => place == machine,
            Some(label) => {
                let domain = |at| domain(self.register, at, label);
                place == machine || domain(place) == domain(machine)
            }
        };
        let held = self.demand(other).held.iter();
        let held = held.filter(|share| counts(*share));
        let mut held = held.filter_map(|share| self.held[share].machine);
        let granted = || {
            let placed = self.requests[other].placed > 0;
            let mut its = self
                .pending
                .iter()
                .filter(|it| it.live && it.request == other);
            placed && its.any(|it| near(it.machine))
        };
        held.any(near) || granted()
    }

    /// There is room for it, and only where others of its group are.
    pub fn is_kept_from_room(&self, at: usize) -> bool {
        let (order, size) = (self.requests[at].order, self.size(at));
        self.requests[at].apart
            && (0..self.machines.len()).any(|machine| {
                let place = &self.machines[machine];
                place.is_schedulable()
                    && place.free.fitting(order, size) > 0
                    && self.could_use(at, machine)
                    && self.is_parted(at, machine)
            })
    }
}

fn domain<'r>(register: &'r Register, machine: usize, label: &str) -> Option<&'r str> {
    let labels = &register.machines[machine].node.labels;
    labels.get(label).map(String::as_str)
}

impl Register {
    pub(crate) fn join_group(&mut self, at: usize) {
        if let Some(apart) = &self.requests[at].wishes().apart {
            self.groups.entry(apart.group.clone()).or_default().push(at);
        }
    }

    pub(crate) fn leave_group(&mut self, at: usize) {
        let Some(apart) = &self.requests[at].wishes().apart else {
            return;
        };
        if let Some(group) = self.groups.get_mut(&apart.group) {
            group.retain(|other| *other != at);
            if group.is_empty() {
                self.groups.remove(&apart.group);
            }
        }
    }
}

#[cfg(test)]
mod tests;
