//! The books of one round: the snapshot with its cross-references, and what the round has decided
//! so far. Every step reads and writes only here.
//!
//! Invariant: `free` of a node is what is left after everything that is held there, leaving or not,
//! and everything granted in this round.

mod allotment;
mod open;

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, Size, UserName, WorkId};
use rustc_hash::FxHashMap;

use crate::{
    apportion::Amounts,
    cap::{self, Cap},
    forest::Forest,
    how_much::fair::Row,
    plan::{CapParts, Grant, Reason, Receipt, Vacate, VacateReason},
    register::{Asked, Register, Share},
    room::Room,
    settings::Settings,
    snapshot::{Class, Node, Policy, Snapshot},
};

/// Memory for the books of a round. It is kept, since asking the system for as much in every round
/// takes longer than writing it.
#[derive(Default)]
pub(crate) struct Desk {
    machines: Vec<Machine<'static>>,
    requests: Vec<Request<'static>>,
    rows: Vec<Row>,
}

pub(crate) struct Books<'a> {
    pub snapshot: &'a Snapshot,
    pub settings: &'a Settings,
    pub register: &'a Register,
    pub forest: &'a Forest,
    pub machines: Vec<Machine<'a>>,
    pub held: &'a [Share],
    /// By share: told to leave, before this round or in it.
    pub leaving: Vec<bool>,
    pub classes: Vec<ClassBook<'a>>,
    pub requests: Vec<Request<'a>>,
    pub pending: Vec<Pending<'a>>,
    pub vacates: BTreeMap<&'a AllocationId, Vacate>,
    pub receipts: Vec<Receipt>,
    /// Bytes of non-preemptable room by user, in all and by class: held, and counted in this
    /// round [C-5].
    pub fixed_used: FxHashMap<&'a UserName, u64>,
    pub fixed_used_in: FxHashMap<(&'a UserName, &'a str), u64>,
    /// For the next round.
    pub needy: BTreeSet<usize>,
    pub deficits: crate::snapshot::Deficits,
    /// What each group of classes could be counted for, and was; by the first class of the group.
    pub turns: Vec<(usize, crate::plan::Turn)>,
    /// The same among what this round began with.
    pub was_needy: Vec<usize>,
    /// Room that could be had, of nodes where a fault changed it.
    pub changed_rooms: BTreeMap<usize, Room>,
    /// What the caps are made of, of work that a fault took something from.
    pub changed_caps: BTreeMap<usize, CapParts>,
    /// By request: whole nodes kept for it (RESERVE).
    pub promised: BTreeMap<usize, Vec<usize>>,
    /// Of what was counted last; empty.
    pub rows: Vec<Row>,
}

pub(crate) struct Machine<'a> {
    pub name: &'a hayward_vocabulary::NodeName,
    pub node: &'a Node,
    pub pool: Option<usize>,
    pub order: u64,
    /// and nothing of work without a class lies on it.
    pub schedulable: bool,
    pub free: Room,
    pub held: &'a [usize],
    /// Something here was told to leave in this round.
    pub stirred: bool,
    /// Granted in this round.
    pub pending: Vec<usize>,
    /// The request this whole node is kept for in this round.
    pub promised_to: Option<usize>,
    /// Room that is leaving and meant for somebody: nothing else may slip into it.
    pub spoken: Vec<Spoken<'a>>,
    /// Services with an instance here before this round.
    pub services: &'a BTreeSet<WorkId>,
}

impl Machine<'_> {
    pub fn is_schedulable(&self) -> bool {
        self.schedulable
    }
}

/// Placed in this round. What mending takes from one and hands to another changes its request.
pub(crate) struct Pending<'a> {
    pub request: usize,
    pub machine: usize,
    pub order: u64,
    pub size: &'a Size,
    pub gpus: Vec<u64>,
    /// False once it was cancelled.
    pub live: bool,
    /// It stands in room that was made for it.
    pub meant: bool,
}

/// Room meant for one process of a request.
pub(crate) struct Spoken<'a> {
    pub request: usize,
    pub order: u64,
    pub size: &'a Size,
    pub gpus: Vec<u64>,
}

pub(crate) struct ClassBook<'a> {
    pub name: &'a str,
    pub class: &'a Class,
    /// None when the policy names a pool that does not exist.
    pub pool: Option<usize>,
    /// Work of each user by time and id; users by name.
    pub users: &'a BTreeMap<UserName, Vec<usize>>,
    pub given: Amounts,
    /// Quanta by weights alone, for section 12.
    pub pure: u64,
    /// Quanta, in the order of users.
    pub user_due: Vec<u64>,
}

impl<'a> ClassBook<'a> {
    pub fn requests(&self) -> impl Iterator<Item = usize> + use<'a> {
        self.users.values().flatten().copied()
    }
}

/// Why a request is left out of counting, in the words of section 13.2.
#[derive(Debug, Clone)]
pub(crate) struct Deferral {
    pub reason: Reason,
    pub refused: bool,
    pub detail: String,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "what a round notes about a request"
)]
pub(crate) struct Request<'a> {
    pub id: &'a WorkId,
    pub demand: &'a Asked,
    pub class: Option<usize>,
    pub order: u64,
    /// Size of one process as granted.
    pub size: &'a Size,
    pub shape: usize,
    /// It names machines.
    pub listed: bool,
    /// Held, not leaving, at the start of the round and after every order to leave.
    pub current: u64,
    /// Of those, on nodes that take no new work: they stay, outside the arithmetic of counts.
    pub resting: u64,
    pub leaving: u64,
    pub cap: Cap,
    /// Processes that could be held if everything preemptable gave way.
    pub reach: u64,
    pub counted: u64,
    pub placed: u64,
    pub deferral: Option<Box<Deferral>>,
    /// Said by the step that left it waiting.
    pub waits: Option<Reason>,
    /// Room for it is on its way: processes that leaving shares will make place for.
    pub coming: u64,
    /// Its order is that of a node it was promised.
    pub upgraded: bool,
    /// Never gets anything again.
    pub ended: bool,
    /// Section 12 found that what it lacks cannot come by itself.
    pub actually_needy: bool,
    /// Something of it was told to leave in this round.
    pub gave: bool,
}

impl Request<'_> {
    /// What it will have once things settle.
    pub fn has(&self) -> u64 {
        self.current + self.placed
    }

    pub fn missing(&self) -> u64 {
        self.counted.saturating_sub(self.has())
    }

    pub fn excess(&self) -> u64 {
        self.has().saturating_sub(self.counted)
    }

    pub fn admits(&self, machine: &Machine) -> bool {
        self.demand.machines.is_empty() || self.demand.machines.contains(machine.name)
    }

    /// Left out of placing: deferred, refused or over.
    pub fn is_out(&self) -> bool {
        self.deferral.is_some() || self.ended
    }

    /// Submit time, then larger order, then id.
    pub fn age(&self) -> (i64, std::cmp::Reverse<u64>, &WorkId) {
        (
            self.demand.submitted_at.unix_ms(),
            std::cmp::Reverse(self.order),
            self.id,
        )
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

    /// What a request asked for, before it was rounded up to what is granted.
    pub fn asked(&self, request: usize) -> &'a Size {
        let request = &self.requests[request];
        request.demand.node_size.as_deref().unwrap_or(request.size)
    }

    /// May this request ever use nodes of this pool?
    pub fn may_use(&self, request: usize, pool: usize) -> bool {
        self.register.may_use(request, pool)
    }

    /// May this request ever use this node, by pool and list?
    pub fn is_permitted(&self, request: usize, machine: usize) -> bool {
        let machine = &self.machines[machine];
        machine.pool.is_some_and(|pool| self.may_use(request, pool))
            && self.requests[request].admits(machine)
    }

    /// Gives one process of `order` quanta and `size` on this node.
    pub fn grant(&mut self, request: usize, machine: usize, order: u64, size: &'a Size) {
        let place = &mut self.machines[machine];
        let work = &mut self.requests[request];
        let own = place.spoken.iter().position(|it| it.request == request);
        if let Some(own) = own {
            place.spoken.remove(own);
            work.coming = work.coming.saturating_sub(1);
        }
        let gpus = place.free.choose_gpus(size.gpu_milli);
        place.free.take(order, size, &gpus);
        place.pending.push(self.pending.len());
        work.placed += 1;
        self.pending.push(Pending {
            request,
            machine,
            order,
            size,
            gpus,
            live: true,
            meant: own.is_some(),
        });
    }

    /// Takes back what was granted in this round.
    pub fn cancel(&mut self, pending: usize) {
        let share = &mut self.pending[pending];
        share.live = false;
        let place = &mut self.machines[share.machine];
        place.free.give(share.order, share.size, &share.gpus);
        place.pending.retain(|other| *other != pending);
        self.requests[share.request].placed -= 1;
    }

    /// Hands what was granted in this round to another request of the same order.
    pub fn hand_over(&mut self, pending: usize, to: usize) {
        let share = &mut self.pending[pending];
        self.requests[share.request].placed -= 1;
        self.requests[to].placed += 1;
        share.request = to;
    }

    /// Tells a share to leave. It keeps its room, and no longer satisfies its request.
    pub fn vacate(&mut self, held: usize, reason: VacateReason, detail: String) {
        let share = &self.held[held];
        // Nothing more is awaited from a node that cannot answer.
        let purge = share
            .machine
            .is_none_or(|machine| self.machines[machine].node.lost);
        if !self.leaving[held] {
            self.leaving[held] = true;
            if let Some(machine) = share.machine {
                self.machines[machine].stirred = true;
            }
            if let Some(request) = share.request {
                let owner = &mut self.requests[request];
                (owner.current, owner.leaving) = (owner.current - 1, owner.leaving + 1);
                owner.gave = true;
            }
        }
        self.vacates.insert(
            &share.id,
            Vacate {
                allocation: share.id.clone(),
                reason,
                detail,
                purge,
            },
        );
    }

    /// As [`Books::vacate`], for the sake of others; leaves a receipt.
    pub fn preempt(&mut self, held: usize, beneficiary: Option<usize>, detail: String) {
        let receipt = self.receipt(held, beneficiary);
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
            beneficiary: beneficiary.map(|at| self.requests[at].id.clone()),
            for_user: beneficiary.map(|at| self.requests[at].demand.user.clone()),
        }
    }

    /// Milliseconds that would be lost with this share, of starting or of tasks in flight.
    pub fn invested_ms(&self, held: usize) -> u64 {
        let allocation = &self.held[held];
        let started = allocation.started_at.unwrap_or(allocation.granted_at);
        let since = allocation.running_since.filter(|_| allocation.running);
        let spent = self.snapshot.now.ms_since(since.unwrap_or(started));
        match (allocation.running, allocation.investment_ms) {
            (true, Some(invested)) => invested,
            (true, None) => spent
                .checked_rem(allocation.item_ms.unwrap_or(0))
                .unwrap_or(spent),
            (false, _) => spent,
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
        let known = self.changed_caps.get(&request).copied();
        let mut parts = known.unwrap_or_else(|| {
            let asked = self.requests[request].demand;
            let counts = (asked.current, asked.leaving);
            cap::of(self.register, &self.snapshot.tunables, request, counts).1
        });
        if self.settings.count_what_fits && self.policy(request) == Some(Policy::FairShare) {
            parts.room = Some(self.most(request));
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
        let request = &self.requests[request];
        let Some(class) = request.class.map(|class| &self.classes[class]) else {
            return 0;
        };
        let jobs = class.users.get(&request.demand.user);
        let of_user = class.pure / (class.users.len() as u64).max(1);
        of_user / jobs.map_or(1, |jobs| (jobs.len() as u64).max(1))
    }

    /// Room on a node without what nobody may take back.
    pub fn room(&self, machine: usize) -> &Room {
        let changed = self.changed_rooms.get(&machine);
        changed.unwrap_or(&self.register.machines[machine].room)
    }

    /// Room on a node once everything that leaves has left, without what was granted and what is
    /// meant for somebody.
    pub fn coming_room(&self, machine: usize) -> Room {
        self.coming_room_for(machine, None)
    }

    /// The same with what is meant for this request.
    pub fn coming_room_for(&self, machine: usize, except: Option<usize>) -> Room {
        let mut room = self.emptied_room(machine);
        let machine = &self.machines[machine];
        for share in machine.pending.iter().map(|at| &self.pending[*at]) {
            room.take(share.order, share.size, &share.gpus);
        }
        for meant in machine
            .spoken
            .iter()
            .filter(|it| Some(it.request) != except)
        {
            room.take(meant.order, meant.size, &meant.gpus);
        }
        room
    }

    /// The same before anything was granted or meant for anybody.
    fn emptied_room(&self, at: usize) -> Room {
        let machine = &self.machines[at];
        if !machine.stirred {
            return self.register.machines[at].coming.clone();
        }
        let mut room = Room::new(machine.order, &machine.node.capacity);
        for held in machine.held.iter().filter(|held| !self.leaving[**held]) {
            let it = &self.held[*held];
            room.take(it.order, &it.size, &it.gpus);
        }
        room
    }

    /// The quanta of [`Books::coming_room`].
    pub fn coming_order(&self, at: usize) -> u64 {
        let machine = &self.machines[at];
        let before = if machine.stirred {
            self.emptied_room(at).order
        } else {
            self.register.machines[at].coming.order
        };
        let granted = machine.pending.iter().map(|at| self.pending[*at].order);
        let meant = machine.spoken.iter().map(|meant| meant.order);
        granted.chain(meant).fold(before, u64::saturating_sub)
    }

    /// Means this much of what will be free on a node for a request.
    pub fn speak_for(&mut self, request: usize, machine: usize) {
        let (order, size) = (self.requests[request].order, self.requests[request].size);
        let gpus = self.coming_room(machine).choose_gpus(size.gpu_milli);
        self.machines[machine].spoken.push(Spoken {
            request,
            order,
            size,
            gpus,
        });
        self.requests[request].coming += 1;
    }

    pub fn grants(&self) -> Vec<Grant> {
        let mut grants = Vec::with_capacity(self.pending.len());
        let live = self.pending.iter().filter(|share| share.live);
        grants.extend(live.filter_map(|share| {
            let request = &self.requests[share.request];
            let class = &self.classes[request.class?];
            Some(Grant {
                work: request.id.clone(),
                kind: request.demand.kind,
                user: request.demand.user.clone(),
                class: class.name.to_owned(),
                node: self.machines[share.machine].name.clone(),
                order: share.order,
                size: share.size.clone(),
                fixed: class.class.policy != Policy::FairShare,
                gpus: share.gpus.clone(),
            })
        }));
        grants
    }
}
