//! Processor settings of a service, and the order of its processors.
//!
//! A processor id names an active or a standby. A slot is the index of a processor in this order:
//! first all actives, then the standbys of the first active, and so on.

use super::Retries;

/// Processor settings of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorSettings {
    /// Number of actives.
    pub instances: u32,
    /// Number of standbys of each active.
    pub standbys: u32,
    /// Whether requests prefer the last node. `false` accepts any node for every request.
    pub host_affinity: bool,
    /// Retry settings. `None` keeps processors running, however their processes end.
    pub retries: Option<Retries>,
}

/// Timeouts of open requests and stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Milliseconds after which a request for one node expires.
    pub request_ms: u64,
    /// Milliseconds after which a stopped standby that does not end is skipped.
    pub stop_ms: u64,
}

/// One instant by two clocks. `monotonic_ms` is for waiting, `wall_ms` for times that outlive a
/// term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub wall_ms: i64,
    pub monotonic_ms: u64,
}

/// Identifies a processor: an active by its number, or one of its standbys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessorId {
    /// Number of the active, from 0.
    pub active: u32,
    /// Number of the standby of this active. `None` for the active itself.
    pub replica: Option<u32>,
}

impl std::fmt::Display for ProcessorId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.replica {
            None => write!(f, "{}", self.active),
            Some(replica) => write!(f, "{}-{replica}", self.active),
        }
    }
}

impl ProcessorSettings {
    /// Returns the number of all processors. Actives come first.
    pub fn count(&self) -> usize {
        self.instances as usize * (1 + self.standbys as usize)
    }

    /// Returns the processor of a slot.
    pub fn id_at(&self, slot: usize) -> ProcessorId {
        let (slot, instances) = (u32::try_from(slot).unwrap_or(u32::MAX), self.instances);
        match slot.checked_sub(instances) {
            None => ProcessorId {
                active: slot,
                replica: None,
            },
            Some(standby) => ProcessorId {
                active: standby / self.standbys.max(1),
                replica: Some(standby % self.standbys.max(1)),
            },
        }
    }

    /// Returns the slot of a processor. `None` if the service has no such processor.
    pub fn slot(&self, id: ProcessorId) -> Option<usize> {
        let is_valid =
            id.active < self.instances && id.replica.is_none_or(|replica| replica < self.standbys);
        let slot = match id.replica {
            None => id.active,
            Some(replica) => self.instances + id.active * self.standbys + replica,
        };
        is_valid.then_some(slot as usize)
    }

    /// Returns the slots of the standbys of an active.
    pub fn standbys_of(&self, active: usize) -> std::ops::Range<usize> {
        let (instances, standbys) = (self.instances as usize, self.standbys as usize);
        let first = instances + active * standbys;
        if active < instances {
            first..first + standbys
        } else {
            0..0
        }
    }

    /// Returns the standbys of an active. For a standby, returns its active and the other standbys.
    pub(super) fn partners(&self, slot: usize) -> impl Iterator<Item = usize> + use<> {
        let active = self.id_at(slot).active as usize;
        let standbys = self.standbys_of(active);
        std::iter::once(active)
            .chain(standbys)
            .filter(move |other| *other != slot)
    }

    /// Returns true if the loss of an active starts a failover.
    pub(super) fn fails_over(&self) -> bool {
        self.standbys > 0 && self.host_affinity
    }
}
