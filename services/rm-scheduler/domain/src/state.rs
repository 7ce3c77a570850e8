//! The books of one round: the snapshot with its cross-references, and what the round has decided
//! so far. Every step reads and writes only here.
//!
//! Invariant: `free` of a node is what is left after everything that is held there, leaving or not,
//! and everything granted in this round.

mod allotment;
mod anti_affinity;
mod derived;
mod future_space;
mod grants;
mod needy;
mod open;
mod rows;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::atomic::AtomicBool,
};

use hayward_vocabulary::{Size, UserName, WorkId};
use rustc_hash::FxHashMap;

use crate::{
    collections::{dense_set::Marks, id_list::Numbers},
    entitlement::apportion::Amounts,
    incremental::{idle_trees::Outcome, tracked_vec::Kept},
    index::{
        Asked, Register, Share, Station, Users, growth_cap::Cap, node_space::Room,
        pool_tree::Forest,
    },
    input::{
        settings::Settings,
        snapshot::{Class, Policy, Snapshot},
    },
    output::plan::{CapParts, Receipt, Vacate, VacateReason},
    preemption::budget::{Brake, Opened},
};

use derived::Sets;
use grants::Pending;
use needy::WasNeedy;

pub(crate) use needy::{Needy, Older};
pub(crate) use rows::{Machine, Request, Spoken};

/// What the books of a round leave for the next.
#[derive(Default)]
pub(crate) struct Desk {
    machines: Kept<Machine>,
    requests: Kept<Request>,
    leaving: Marks,
    /// Empty: the memory of what was granted.
    pending: Vec<Pending<'static>>,
    outcomes: Vec<Outcome>,
    needy: Needy,
    sets: Sets,
}

#[cfg(test)]
impl Desk {
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }
}

pub(crate) struct Books<'a> {
    pub snapshot: &'a Snapshot,
    pub settings: &'a Settings,
    pub register: &'a Register,
    pub forest: &'a Forest,
    pub machines: Kept<Machine>,
    pub held: &'a [Share],
    /// By share: told to leave, before this round or in it.
    pub leaving: Marks,
    pub classes: Vec<ClassBook<'a>>,
    pub requests: Kept<Request>,
    pub pending: Vec<Pending<'a>>,
    pub vacates: Vec<Vacate>,
    /// By share: where it stands among them.
    pub vacate_at: FxHashMap<usize, usize>,
    pub receipts: Vec<Receipt>,
    /// Bytes of non-preemptable room by user, in all and by class: held, and counted in this
    /// round [C-5].
    pub fixed_used: FxHashMap<&'a UserName, u64>,
    pub fixed_used_in: FxHashMap<(&'a UserName, &'a str), u64>,
    pub deficits: crate::input::snapshot::Deficits,
    /// What each group of classes could be counted for, and was; by the first class of the group.
    pub turns: Vec<(usize, crate::output::plan::Turn)>,
    pub was_needy: WasNeedy<'a>,
    /// Nodes on which room was meant for somebody in this round.
    pub spoken_on: BTreeSet<usize>,
    /// Room that could be had, of nodes where a fault changed it.
    pub changed_rooms: BTreeMap<usize, Room>,
    /// What the caps are made of, of work that a fault took something from.
    pub changed_caps: BTreeMap<usize, (Cap, CapParts)>,
    /// By request: whole nodes kept for it (RESERVE).
    pub promised: BTreeMap<usize, Vec<usize>>,
    /// By tree.
    pub outcomes: Vec<Outcome>,
    /// Something was looked at in the tree at hand that passes by itself.
    pub(crate) passes: AtomicBool,
    /// Work that waits because the budget does not allow to take back what it needs (B5).
    pub brakes: FxHashMap<usize, Brake>,
    /// Opened when something is to be taken back first.
    pub(crate) budget: Opened,
    pub sets: Sets,
}

pub(crate) struct ClassBook<'a> {
    pub name: &'a str,
    pub class: &'a Class,
    /// None when the policy names a pool that does not exist.
    pub pool: Option<usize>,
    pub users: &'a Users,
    pub given: Amounts,
    /// Quanta by weights alone, for section 12.
    pub pure: u64,
    /// Quanta, in the order of users.
    pub user_due: Vec<u64>,
}

impl<'a> ClassBook<'a> {
    pub fn requests(&self) -> impl Iterator<Item = usize> + use<'a> {
        self.users.values().flat_map(Numbers::iter)
    }
}

impl<'a> Books<'a> {
    pub fn policy(&self, request: usize) -> Option<Policy> {
        self.requests[request]
            .class
            .map(|class| self.classes[class].class.policy)
    }

    /// Home pool of a request's class.
    pub fn home(&self, request: usize) -> Option<usize> {
        self.requests[request]
            .class
            .and_then(|class| self.classes[class].pool)
    }

    pub fn id(&self, request: usize) -> &'a WorkId {
        &self.register.requests[request].id
    }

    pub fn demand(&self, request: usize) -> &'a Asked {
        &self.register.requests[request]
    }

    /// Size of one process as granted.
    pub fn size(&self, request: usize) -> &'a Size {
        &self.register.shapes[self.requests[request].shape].3
    }

    pub fn station(&self, machine: usize) -> &'a Station {
        &self.register.machines[machine]
    }

    /// Submit time, then larger order, then id.
    pub fn age(&self, request: usize) -> (i64, Reverse<u64>, &'a WorkId) {
        let asked = self.demand(request);
        let order = self.requests[request].order;
        (asked.submitted_at.unix_ms(), Reverse(order), &asked.id)
    }

    /// Is this node listed, where the request names any?
    pub fn admits(&self, request: usize, machine: usize) -> bool {
        self.demand(request).admits(&self.station(machine).name)
    }

    /// This node is blocked for this request alone (blocklist 8.5).
    pub fn avoids(&self, request: usize, machine: usize) -> bool {
        self.demand(request).avoids(&self.station(machine).name)
    }

    /// What a request asked for, before it was rounded up to what is granted.
    pub fn asked(&self, request: usize) -> &'a Size {
        let asked = self.demand(request);
        asked
            .wishes()
            .node_size
            .as_ref()
            .unwrap_or(self.size(request))
    }

    /// May this request ever use nodes of this pool?
    pub fn may_use(&self, request: usize, pool: usize) -> bool {
        self.register.may_use(request, pool)
    }

    /// May it use this node as things are: is nothing there that it is kept apart from?
    pub fn is_permitted(&self, request: usize, machine: usize) -> bool {
        self.could_use(request, machine) && !self.is_parted(request, machine)
    }

    /// May this request ever use this node, by pool and list?
    pub fn could_use(&self, request: usize, machine: usize) -> bool {
        let pool = self.machines[machine].pool;
        pool.is_some_and(|pool| self.may_use(request, pool)) && self.admits(request, machine)
    }

    /// Tells a share to leave. It keeps its room, and no longer satisfies its request.
    pub fn vacate(&mut self, held: usize, reason: VacateReason, detail: String) {
        let share = &self.held[held];
        // Nothing more is awaited from a node that cannot answer.
        let purge = share
            .machine
            .is_none_or(|machine| self.station(machine).node.lost);
        if !self.leaving[held] {
            self.leaving.insert(held);
            if let Some(machine) = share.machine {
                self.machines[machine].told.push(held);
            }
            if let Some(request) = share.request {
                let owner = &mut self.requests[request];
                (owner.current, owner.leaving) = (owner.current - 1, owner.leaving + 1);
                owner.gave = true;
            }
        }
        let vacate = Vacate {
            allocation: share.id.clone(),
            reason,
            detail,
            purge,
        };
        // What is said last of a share stands.
        let place = *self.vacate_at.entry(held).or_insert(self.vacates.len());
        match self.vacates.get_mut(place) {
            Some(known) => *known = vacate,
            None => self.vacates.push(vacate),
        }
    }

    /// As [`Books::vacate`], for the sake of others; leaves a receipt.
    pub fn preempt(&mut self, held: usize, beneficiary: Option<usize>, detail: String) {
        let receipt = self.receipt(held, beneficiary);
        self.spend(held);
        self.vacate(held, VacateReason::Preempted, detail);
        self.receipts.push(receipt);
    }

    fn receipt(&self, held: usize, beneficiary: Option<usize>) -> Receipt {
        let share = &self.held[held];
        let allocation = share;
        Receipt {
            allocation: share.id.clone(),
            work: allocation.work.clone(),
            user: allocation.user.clone(),
            node: allocation.node.clone(),
            order: allocation.order,
            lost_ms: self.invested_ms(held),
            beneficiary: beneficiary.map(|at| self.id(at).clone()),
            for_user: beneficiary.map(|at| self.demand(at).user.clone()),
        }
    }

    /// Milliseconds that would be lost with this share, of starting or of tasks in flight.
    pub fn invested_ms(&self, held: usize) -> u64 {
        self.register.loads[held].invested_ms(self.snapshot.now)
    }

    /// Notes what work is counted for. What stands already is not written, or all would be stirred
    /// in every round.
    pub fn count(&mut self, request: usize, processes: u64) {
        if self.requests[request].counted != processes {
            self.requests[request].counted = processes;
        }
    }

    /// Processes a request is due, as people read it: what is lent to it is due to it as well.
    pub fn due(&self, request: usize) -> u64 {
        let request = &self.requests[request];
        if self.settings.lend_idle {
            request.counted.max(request.has())
        } else {
            request.counted
        }
    }

    /// Whole nodes kept for a request.
    pub fn promised_to(&self, request: usize) -> &[usize] {
        self.promised.get(&request).map_or(&[], Vec::as_slice)
    }

    /// What the cap of a request is made of.
    pub fn cap_parts(&self, request: usize) -> CapParts {
        let known = self.changed_caps.get(&request).map(|(_, parts)| *parts);
        let mut parts = known.unwrap_or_else(|| {
            let holding = &self.demand(request).holding;
            let has = holding.has();
            holding.cap.parts(self.register, request, has)
        });
        if self.settings.count_what_fits && self.policy(request) == Some(Policy::FairShare) {
            // Where there is room for more than it can use, nobody looks how much more.
            parts.room = Some(self.most(request)).filter(|most| *most < parts.base);
        }
        parts
    }

    /// Processes for which there is room, with those that rest where none is.
    pub fn most(&self, request: usize) -> u64 {
        let request = &self.requests[request];
        request.reach.saturating_add(request.resting)
    }

    pub fn in_tree(&self, machine: usize, tree: usize) -> bool {
        self.machines[machine]
            .pool
            .is_some_and(|pool| self.forest.root(pool) == tree)
    }

    /// Quanta by weights alone.
    pub fn pure(&self, request: usize) -> u64 {
        let class = self.requests[request].class;
        let Some(class) = class.map(|class| &self.classes[class]) else {
            return 0;
        };
        let jobs = class.users.get(self.demand(request).user_at);
        let of_user = class.pure / (class.users.len() as u64).max(1);
        of_user / jobs.map_or(1, |jobs| (jobs.len() as u64).max(1))
    }

    /// Room on a node without what nobody may take back.
    pub fn room(&self, machine: usize) -> &Room {
        let changed = self.changed_rooms.get(&machine);
        changed.unwrap_or(&self.register.machines[machine].room)
    }
}
