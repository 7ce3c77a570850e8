//! What a machine says of itself: how much memory it offers, and when it asks for no new work.
//!
//! Both change with every process that starts, and each change is news for the whole fleet. So what
//! is told moves in steps, and only when the truth has moved well past one.

use hayward_vocabulary::Size;

const MIB: u64 = 1 << 20;
/// The least step that memory is told in.
const LEAST_STEP: u64 = 256 * MIB;
/// The part of the machine that is a step.
const STEPS: u64 = 64;

/// Memory that may be handed out: all but what system accounts hold, and never all but a
/// little: what a machine that just booted needs is still to come.
pub fn allocatable(total: u64, held_by_system: u64) -> u64 {
    let least = (total / 16).min(2048 * MIB);
    total.saturating_sub(held_by_system.max(least))
}

/// What is told of `measured` bytes after `told` was: whole steps, the same until the truth is half
/// a step below it or a step and a half above.
pub fn told(told: Option<u64>, measured: u64, total: u64) -> u64 {
    let step = (total / STEPS).max(LEAST_STEP) / LEAST_STEP * LEAST_STEP;
    match told {
        Some(told) if measured + step / 2 >= told && measured < told + step + step / 2 => told,
        // A machine smaller than a step offers what it has.
        _ if measured < step => measured,
        _ => measured / step * step,
    }
}

/// What speaks for quiet at the moment. What cannot be read says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Feeling {
    pub disk_free_bytes: Option<u64>,
    /// Hundredths of a percent of the last ten seconds in which something waited for memory.
    pub memory_pressure_centi: Option<u64>,
    /// What its operator left a note about; empty for a note without a word.
    pub note: Option<String>,
    /// What is offered, and what was granted to what runs.
    pub offered: Size,
    pub granted: Size,
    /// Why nothing can be started: its journal refuses (F29).
    pub trouble: Option<String>,
}

/// When it is enough. Zero is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub disk_bytes: u64,
    pub memory_pressure_percent: u64,
}

/// What the machine asked for quiet for when it was last looked at: it takes more to end it than to
/// begin it, so that it does not flutter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quiet {
    disk: bool,
    memory: bool,
}

impl Quiet {
    /// Why no new work is wanted, for people; none where it is. The text holds no running numbers.
    pub fn judged(&mut self, feeling: &Feeling, bounds: Bounds) -> Option<String> {
        let Bounds {
            disk_bytes,
            memory_pressure_percent: percent,
        } = bounds;
        let enough_disk = if self.disk {
            disk_bytes + disk_bytes / 4
        } else {
            disk_bytes
        };
        self.disk = feeling
            .disk_free_bytes
            .is_some_and(|free| free < enough_disk);
        let bearable = if self.memory { percent / 2 } else { percent } * 100;
        let pressure = feeling.memory_pressure_centi.unwrap_or(0);
        self.memory = percent > 0 && pressure > bearable;
        let mut why = Vec::new();
        if let Some(note) = &feeling.note {
            why.push(match note.as_str() {
                "" => "its operator asks for it".to_owned(),
                note => format!("its operator asks for it: {note}"),
            });
        }
        why.extend(feeling.trouble.clone());
        if self.disk {
            why.push(format!(
                "less than {} MiB of disk is free",
                disk_bytes / MIB
            ));
        }
        if self.memory {
            why.push(format!("memory is waited for {percent} % of the time"));
        }
        // It shrank, nothing is ended for that.
        if feeling.granted.memory_bytes > feeling.offered.memory_bytes {
            why.push("it offers less memory than was granted to what runs here".to_owned());
        }
        (!why.is_empty()).then(|| why.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1024 * MIB;
    const BOUNDS: Bounds = Bounds {
        disk_bytes: 512 * MIB,
        memory_pressure_percent: 50,
    };

    #[test]
    fn r_4_1_what_the_system_holds_is_not_offered() {
        // (total, held) -> offered
        let table = [
            ((64 * GIB, 10 * GIB), 54 * GIB),
            ((64 * GIB, GIB), 62 * GIB),
            ((16 * GIB, 0), 15 * GIB),
            ((16 * GIB, 20 * GIB), 0),
            ((0, 0), 0),
        ];
        for ((total, held), offered) in table {
            assert_eq!(allocatable(total, held), offered, "{total} {held}");
        }
    }

    #[test]
    fn memory_that_moves_a_little_is_told_once() {
        // 16 GiB: steps of 256 MiB.
        let tell = |before, measured_mib| told(before, measured_mib * MIB, 16 * GIB) / MIB;
        assert_eq!(tell(None, 15_000), 14_848);
        let before = Some(14_848 * MIB);
        for measured in [14_720, 14_800, 14_848, 15_100, 15_231] {
            assert_eq!(tell(before, measured), 14_848, "{measured}");
        }
        assert_eq!(tell(before, 14_719), 14_592);
        assert_eq!(tell(before, 15_232), 15_104);
        assert_eq!(tell(None, 100), 100, "a very small machine");
        // 1 TiB: steps of 16 GiB.
        assert_eq!(told(None, 1000 * GIB, 1024 * GIB), 992 * GIB);
    }

    #[test]
    fn quiet_says_why_and_ends_later_than_it_begins() {
        let mut quiet = Quiet::default();
        let mut disk = |free_mib: u64| {
            let feeling = Feeling {
                disk_free_bytes: Some(free_mib * MIB),
                ..Feeling::default()
            };
            quiet.judged(&feeling, BOUNDS)
        };
        assert_eq!(disk(512), None);
        assert_eq!(disk(511).unwrap(), "less than 512 MiB of disk is free");
        assert!(disk(600).is_some(), "not enough to end it");
        assert_eq!(disk(640), None);
        assert_eq!(disk(600), None, "not enough to begin it");

        let mut quiet = Quiet::default();
        let mut memory = |percent: u64| {
            let feeling = Feeling {
                memory_pressure_centi: Some(percent * 100),
                ..Feeling::default()
            };
            quiet.judged(&feeling, BOUNDS).is_some()
        };
        let felt = [50, 51, 40, 26, 25, 40].map(&mut memory);
        assert_eq!(felt, [false, true, true, true, false, false]);
    }

    #[test]
    fn notes_and_shrinking_are_told_and_zero_is_never() {
        let off = Bounds {
            disk_bytes: 0,
            memory_pressure_percent: 0,
        };
        let dire = Feeling {
            disk_free_bytes: Some(0),
            memory_pressure_centi: Some(10_000),
            ..Feeling::default()
        };
        assert_eq!(Quiet::default().judged(&dire, off), None);
        assert_eq!(Quiet::default().judged(&Feeling::default(), BOUNDS), None);
        let shrunk = Feeling {
            note: Some("new fan".into()),
            offered: Size::memory(3),
            granted: Size::memory(4),
            trouble: Some("its journal cannot be written".into()),
            ..Feeling::default()
        };
        let why = Quiet::default().judged(&shrunk, BOUNDS).unwrap();
        assert_eq!(
            why,
            "its operator asks for it: new fan; its journal cannot be written; \
             it offers less memory than was granted to what runs here"
        );
    }

    proptest! {
        /// However memory moves: what is told is never more than half a step above the truth, and
        /// telling it again changes nothing.
        #[test]
        fn what_is_told_stays_near_the_truth(
            total in GIB..2048 * GIB, moves in prop::collection::vec(0..=100_u64, 1..50),
        ) {
            let step = (total / STEPS).max(LEAST_STEP);
            let mut before = None;
            for part in moves {
                let measured = total / 100 * part;
                let now = told(before, measured, total);
                prop_assert!(now <= measured + step / 2);
                prop_assert!(measured < now + 2 * step);
                prop_assert_eq!(told(Some(now), measured, total), now);
                before = Some(now);
            }
        }
    }
}
