//! What a round notes about each node and each piece of work, beside what the register says.

use crate::{
    index::{Asked, Register, growth_cap::Cap, node_space::Room},
    input::settings::Settings,
    output::reason::Deferral,
};

/// What is asked together lies together: what the register says of a node first, in two lines of
/// memory, then what the round adds, which is looked at only where it wrote something.
#[repr(C, align(64))]
pub(crate) struct Machine {
    pub pool: Option<usize>,
    pub order: u64,
    /// and nothing of work without a class lies on it.
    pub schedulable: bool,
    /// No more is held than there is, and nothing that stays for good: what is free says the rest.
    pub is_plain: bool,
    /// Quanta that will be free once everything has left that was told to before this round.
    pub coming_order: u64,
    pub free: Room,
    /// Shares here that were told to leave in this round.
    pub told: Vec<usize>,
    /// Granted in this round.
    pub pending: Vec<usize>,
    /// Room that is leaving and meant for somebody: nothing else may slip into it.
    pub spoken: Vec<Spoken>,
    /// The request this whole node is kept for in this round.
    pub promised_to: Option<usize>,
}

impl Machine {
    pub fn of(register: &Register, at: usize) -> Self {
        let mut machine = Self {
            pool: None,
            order: 0,
            schedulable: false,
            is_plain: false,
            free: Room::default(),
            coming_order: 0,
            told: Vec::new(),
            pending: Vec::new(),
            promised_to: None,
            spoken: Vec::new(),
        };
        machine.renew(register, at, false);
        machine
    }

    /// Brings the row in place to its station; what a round adds to it is there only if one wrote
    /// it.
    pub fn renew(&mut self, register: &Register, at: usize, was_written: bool) {
        let station = &register.machines[at];
        (self.pool, self.order) = (station.pool, station.order);
        (self.schedulable, self.coming_order) = (station.schedulable, register.coming_order(at));
        self.is_plain = station.held_quanta <= station.order && station.room.order == station.order;
        register.set_free(at, &mut self.free);
        if was_written {
            self.told.clear();
            self.pending.clear();
            self.promised_to = None;
            self.spoken.clear();
        }
    }

    #[cfg(test)]
    pub fn assert_is(&self, other: &Self) {
        let of_node = |it: &Self| (it.pool, it.order, it.schedulable, it.coming_order);
        assert_eq!(of_node(self), of_node(other));
        assert_eq!(self.is_plain, other.is_plain);
        assert_eq!(self.free, other.free);
        assert_eq!((&self.told, &self.pending), (&other.told, &other.pending));
        assert_eq!(self.promised_to, other.promised_to);
        assert!(self.spoken.is_empty() && other.spoken.is_empty());
    }

    pub fn is_schedulable(&self) -> bool {
        self.schedulable
    }
}

/// Room meant for one process of a request.
pub(crate) struct Spoken {
    pub request: usize,
    pub order: u64,
    pub gpus: Vec<u64>,
}

/// What it has, is due and waits for comes first, then what else is asked to place it: of work
/// anywhere that is one line of memory and another, of three.
#[repr(C, align(64))]
pub(crate) struct Request {
    pub class: Option<usize>,
    pub order: u64,
    /// Held, not leaving, at the start of the round and after every order to leave.
    pub current: u64,
    pub placed: u64,
    pub counted: u64,
    /// Room for it is on its way: processes that leaving shares will make place for.
    pub coming: u64,
    /// It names machines.
    pub listed: bool,
    /// It is kept apart from others of its group.
    pub apart: bool,
    /// Its order is that of a node it was promised.
    pub upgraded: bool,
    /// Never gets anything again.
    pub ended: bool,
    /// Section 12 found that what it lacks cannot come by itself.
    pub actually_needy: bool,
    /// Something of it was told to leave in this round.
    pub gave: bool,
    pub deferral: Option<Box<Deferral>>,
    pub shape: usize,
    /// Processes that could be held if everything preemptable gave way, up to what it could use.
    pub reach: u64,
    pub cap: Cap,
    /// Of those held, on nodes that take no new work: they stay, outside the arithmetic of counts.
    pub resting: u64,
    pub leaving: u64,
    /// What it had when counting began.
    pub had: u64,
    /// Quanta of what was placed.
    pub granted: u64,
}

impl Request {
    pub fn of(asked: &Asked, settings: &Settings) -> Self {
        Self {
            class: asked.class,
            order: asked.order,
            shape: asked.shape,
            listed: !asked.wishes().machines.is_empty(),
            apart: asked.wishes().apart.is_some(),
            current: asked.holding.current,
            resting: if settings.rest_on_closed {
                asked.holding.resting
            } else {
                0
            },
            leaving: asked.holding.leaving,
            had: asked.holding.current,
            cap: asked.holding.cap,
            reach: u64::MAX,
            counted: 0,
            placed: 0,
            granted: 0,
            deferral: asked.deferral.clone(),
            coming: 0,
            upgraded: false,
            ended: false,
            actually_needy: false,
            gave: false,
        }
    }

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

    /// Not every node of a pool is as good as any other for it.
    pub fn is_picky(&self) -> bool {
        self.listed || self.apart
    }

    /// Left out of placing: deferred, refused or over.
    pub fn is_out(&self) -> bool {
        self.deferral.is_some() || self.ended
    }
}
