//! Decides what a node offers: how much memory, and whether the node accepts new work.
//!
//! The measured values change with every process, and each change of an offer is published to the
//! fleet. The offer therefore changes in steps, with hysteresis.

use hayward_vocabulary::Size;

const MIB: u64 = 1 << 20;
/// Minimum step of offered memory, in bytes.
const MIN_STEP: u64 = 256 * MIB;
/// Number of steps between zero and the total memory of a large node.
const STEPS: u64 = 64;

/// Returns the memory that may be granted, in bytes. It is the total without the memory of system
/// accounts. A sixteenth of the total, at most 2 GiB, is always reserved, because system processes
/// of a node that has just booted will still grow.
pub fn allocatable_memory(total: u64, system_bytes: u64) -> u64 {
    let reserve = (total / 16).min(2048 * MIB);
    total.saturating_sub(system_bytes.max(reserve))
}

/// Returns the memory to offer, rounded down to whole steps. The offer stays at `offered` until
/// `current` is half a step below it or one and a half steps above.
pub fn offered_memory(offered: Option<u64>, current: u64, total: u64) -> u64 {
    let step = (total / STEPS).max(MIN_STEP) / MIN_STEP * MIN_STEP;
    match offered {
        Some(offered) if current + step / 2 >= offered && current < offered + step + step / 2 => {
            offered
        }
        // Memory of less than one step is offered without rounding.
        _ if current < step => current,
        _ => current / step * step,
    }
}

/// Readings that may quiesce the node. A quiesced node accepts no new work. A value that cannot be
/// read is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readings {
    pub disk_free_bytes: Option<u64>,
    /// Share of the last ten seconds in which a process waited for memory, in 0.01 %.
    pub memory_pressure_centi: Option<u64>,
    /// First line of the quiesce file. It is empty for an empty file, and `None` without a file.
    pub note: Option<String>,
    /// Resources that the node offers now.
    pub offered: Size,
    /// Resources granted to running containers.
    pub granted: Size,
    /// Why the node cannot start anything, such as a journal that cannot be written (F29). `None`
    /// if it can.
    pub fault: Option<String>,
}

/// Limits that quiesce the node. Zero disables a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuiesceLimits {
    /// Minimum free disk space, in bytes.
    pub disk_bytes: u64,
    /// Maximum share of time in which a process waits for memory, in percent.
    pub memory_pressure_percent: u64,
}

/// Whether each limit was exceeded at the last reading. A quiesce ends only well within its limit,
/// so that the state does not flap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuiesceState {
    disk: bool,
    memory: bool,
}

impl QuiesceState {
    /// Returns why the node accepts no new work, or `None` if it does. The text contains no current
    /// values, so that it rarely changes.
    pub fn quiesce_reason(&mut self, readings: &Readings, limits: QuiesceLimits) -> Option<String> {
        let QuiesceLimits {
            disk_bytes,
            memory_pressure_percent: percent,
        } = limits;
        let enough_disk = if self.disk {
            disk_bytes + disk_bytes / 4
        } else {
            disk_bytes
        };
        self.disk = readings
            .disk_free_bytes
            .is_some_and(|free| free < enough_disk);
        let limit = if self.memory { percent / 2 } else { percent } * 100;
        let pressure = readings.memory_pressure_centi.unwrap_or(0);
        self.memory = percent > 0 && pressure > limit;
        let mut reasons = Vec::new();
        if let Some(note) = &readings.note {
            reasons.push(match note.as_str() {
                "" => "requested by its operator".to_owned(),
                note => format!("requested by its operator: {note}"),
            });
        }
        reasons.extend(readings.fault.clone());
        if self.disk {
            reasons.push(format!(
                "less than {} MiB of disk is free",
                disk_bytes / MIB
            ));
        }
        if self.memory {
            reasons.push(format!("memory pressure is above {percent} %"));
        }
        // Running containers are not ended when the node shrinks.
        if readings.granted.memory_bytes > readings.offered.memory_bytes {
            reasons.push("it offers less memory than was granted to its containers".to_owned());
        }
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1024 * MIB;
    const LIMITS: QuiesceLimits = QuiesceLimits {
        disk_bytes: 512 * MIB,
        memory_pressure_percent: 50,
    };

    #[test]
    fn memory_of_system_accounts_is_not_offered() {
        // Each row is ((total, memory of system accounts), allocatable memory).
        let table = [
            ((64 * GIB, 10 * GIB), 54 * GIB),
            ((64 * GIB, GIB), 62 * GIB),
            ((16 * GIB, 0), 15 * GIB),
            ((16 * GIB, 20 * GIB), 0),
            ((0, 0), 0),
        ];
        for ((total, system_bytes), offered) in table {
            assert_eq!(
                allocatable_memory(total, system_bytes),
                offered,
                "{total} {system_bytes}"
            );
        }
    }

    #[test]
    fn small_changes_of_memory_change_no_offer() {
        // A node of 16 GiB has steps of 256 MiB.
        let offered =
            |previous, current_mib| offered_memory(previous, current_mib * MIB, 16 * GIB) / MIB;
        assert_eq!(offered(None, 15_000), 14_848);
        let previous = Some(14_848 * MIB);
        for current in [14_720, 14_800, 14_848, 15_100, 15_231] {
            assert_eq!(offered(previous, current), 14_848, "{current}");
        }
        assert_eq!(offered(previous, 14_719), 14_592);
        assert_eq!(offered(previous, 15_232), 15_104);
        assert_eq!(offered(None, 100), 100, "a very small machine");
        // A node of 1 TiB has steps of 16 GiB.
        assert_eq!(offered_memory(None, 1000 * GIB, 1024 * GIB), 992 * GIB);
    }

    #[test]
    fn a_quiesce_ends_only_well_within_the_limit_that_started_it() {
        let mut quiesce = QuiesceState::default();
        let mut reason_for_free_disk = |free_mib: u64| {
            let readings = Readings {
                disk_free_bytes: Some(free_mib * MIB),
                ..Readings::default()
            };
            quiesce.quiesce_reason(&readings, LIMITS)
        };
        assert_eq!(reason_for_free_disk(512), None);
        assert_eq!(
            reason_for_free_disk(511).unwrap(),
            "less than 512 MiB of disk is free"
        );
        assert!(reason_for_free_disk(600).is_some(), "too little to end it");
        assert_eq!(reason_for_free_disk(640), None);
        assert_eq!(reason_for_free_disk(600), None, "too little to start it");

        let mut quiesce = QuiesceState::default();
        let mut is_quiesced_at_pressure = |percent: u64| {
            let readings = Readings {
                memory_pressure_centi: Some(percent * 100),
                ..Readings::default()
            };
            quiesce.quiesce_reason(&readings, LIMITS).is_some()
        };
        let results = [50, 51, 40, 26, 25, 40].map(&mut is_quiesced_at_pressure);
        assert_eq!(results, [false, true, true, true, false, false]);
    }

    #[test]
    fn a_note_or_a_lower_offer_quiesces_and_a_limit_of_zero_does_not() {
        let disabled = QuiesceLimits {
            disk_bytes: 0,
            memory_pressure_percent: 0,
        };
        let exceeded = Readings {
            disk_free_bytes: Some(0),
            memory_pressure_centi: Some(10_000),
            ..Readings::default()
        };
        assert_eq!(
            QuiesceState::default().quiesce_reason(&exceeded, disabled),
            None
        );
        assert_eq!(
            QuiesceState::default().quiesce_reason(&Readings::default(), LIMITS),
            None
        );
        let shrunk = Readings {
            note: Some("new fan".into()),
            offered: Size::memory(3),
            granted: Size::memory(4),
            fault: Some("its journal cannot be written".into()),
            ..Readings::default()
        };
        let reason = QuiesceState::default()
            .quiesce_reason(&shrunk, LIMITS)
            .unwrap();
        assert_eq!(
            reason,
            "requested by its operator: new fan; its journal cannot be written; \
             it offers less memory than was granted to its containers"
        );
    }

    proptest! {
        /// The offer is at most half a step above the current value, and stable.
        #[test]
        fn the_offer_stays_near_the_current_memory(
            total in GIB..2048 * GIB, percentages in prop::collection::vec(0..=100_u64, 1..50),
        ) {
            let step = (total / STEPS).max(MIN_STEP);
            let mut previous = None;
            for percent in percentages {
                let current = total / 100 * percent;
                let next = offered_memory(previous, current, total);
                prop_assert!(next <= current + step / 2);
                prop_assert!(current < next + 2 * step);
                prop_assert_eq!(offered_memory(Some(next), current, total), next);
                previous = Some(next);
            }
        }
    }
}
