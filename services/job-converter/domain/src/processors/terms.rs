//! What a service says about its processors, and how they are numbered.

use super::Retries;

/// What a service says about its processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    pub instances: u32,
    /// Standbys of each active.
    pub standbys: u32,
    /// Off: every request goes to any host.
    pub host_affinity: bool,
    /// Absent: it is kept up for ever, however its processes end.
    pub retries: Option<Retries>,
}

/// How long things are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// A request for a certain host is expired after more than this (7.4).
    pub request_ms: u64,
    /// A standby that was told to stop and does not is passed over after this (11.6).
    pub stop_ms: u64,
}

/// One instant by two clocks: `monotonic_ms` for waiting, `wall_ms` for what outlives a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub wall_ms: i64,
    pub monotonic_ms: u64,
}

/// Which processor: an active by its number, or one that stands by for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub active: u32,
    pub replica: Option<u32>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.replica {
            None => write!(f, "{}", self.active),
            Some(replica) => write!(f, "{}-{replica}", self.active),
        }
    }
}

impl Terms {
    /// All processors: the actives first.
    pub fn count(&self) -> usize {
        self.instances as usize * (1 + self.standbys as usize)
    }

    pub fn place(&self, slot: usize) -> Place {
        let (slot, instances) = (u32::try_from(slot).unwrap_or(u32::MAX), self.instances);
        match slot.checked_sub(instances) {
            None => Place {
                active: slot,
                replica: None,
            },
            Some(standby) => Place {
                active: standby / self.standbys.max(1),
                replica: Some(standby % self.standbys.max(1)),
            },
        }
    }

    pub fn slot(&self, place: Place) -> Option<usize> {
        let within = place.active < self.instances
            && place.replica.is_none_or(|replica| replica < self.standbys);
        let slot = match place.replica {
            None => place.active,
            Some(replica) => self.instances + place.active * self.standbys + replica,
        };
        within.then_some(slot as usize)
    }

    pub fn standbys_of(&self, active: usize) -> std::ops::Range<usize> {
        let (instances, standbys) = (self.instances as usize, self.standbys as usize);
        let first = instances + active * standbys;
        if active < instances {
            first..first + standbys
        } else {
            0..0
        }
    }

    /// The standbys of an active, or the active and the other standbys (11.1).
    pub(super) fn partners(&self, slot: usize) -> impl Iterator<Item = usize> + use<> {
        let active = self.place(slot).active as usize;
        let standbys = self.standbys_of(active);
        std::iter::once(active)
            .chain(standbys)
            .filter(move |other| *other != slot)
    }

    /// Loss of an active is answered by what stands by for it.
    pub(super) fn fails_over(&self) -> bool {
        self.standbys > 0 && self.host_affinity
    }
}
