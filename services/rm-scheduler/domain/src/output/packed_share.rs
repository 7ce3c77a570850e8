//! Compact form of a work share: its numbers are mostly small.

use hayward_vocabulary::WorkKind;

use super::shares::{CapParts, Counts, Tally, WorkShare};

/// A work share in half the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedShare(Kept);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kept {
    Small(Small),
    Large(Box<Large>),
}

/// A share, and the quanta that were asked for; a whole node may have more.
type Large = (WorkShare, u64);

impl PackedShare {
    pub(crate) fn of(share: &WorkShare, asked: u64) -> Self {
        Self(match Small::of(share, asked) {
            Some(small) => Kept::Small(small),
            None => Kept::Large(Box::new((*share, asked))),
        })
    }

    pub fn share(&self) -> WorkShare {
        match &self.0 {
            Kept::Small(small) => small.share(),
            Kept::Large(large) => large.0,
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        match &self.0 {
            Kept::Small(small) => small.tally(),
            Kept::Large(large) => large.0.tally,
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        match &self.0 {
            Kept::Small(small) => small.counts(),
            Kept::Large(large) => {
                let (share, order) = **large;
                Counts {
                    counted: share.counted,
                    current: share.current,
                    leaving: share.leaving,
                    order,
                    wanted: share.wanted,
                }
            }
        }
    }
}

/// Marks an absent part, so stored numbers are smaller.
const ABSENT: u32 = u32::MAX;
/// Bits of the largest stored number.
const BITS: u32 = u32::BITS - 1;
/// Numbers that are always present, and numbers that may be absent.
const SURE: usize = 16;
const MAYBE: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Small {
    kind: WorkKind,
    sure: [u32; SURE],
    maybe: [u32; MAYBE],
}

impl Small {
    /// None if a number is too large.
    fn of(share: &WorkShare, asked: u64) -> Option<Self> {
        let WorkShare {
            kind,
            order,
            wanted,
            cap,
            counted,
            current,
            leaving,
            tally,
        } = *share;
        let sure = [
            counted,
            current,
            leaving,
            asked,
            wanted,
            order,
            cap.base,
            tally.due,
            tally.divided,
            tally.resting,
            tally.lent,
            tally.held,
            tally.staying,
            tally.granted,
            tally.vacating,
            tally.closed,
        ];
        let maybe = [cap.initialization, cap.doubling, cap.prediction, cap.room];
        // One comparison for all numbers.
        let bits = sure.iter().fold(0, |all, number| all | number);
        let bits = maybe.iter().fold(bits, |all, it| all | it.unwrap_or(0));
        if bits >> BITS != 0 {
            return None;
        }
        Some(Self {
            kind,
            sure: sure.map(small),
            maybe: maybe.map(|number| number.map_or(ABSENT, small)),
        })
    }

    fn counts(&self) -> Counts {
        let [counted, current, leaving, order, wanted, ..] = self.sure.map(u64::from);
        Counts {
            counted,
            current,
            leaving,
            order,
            wanted,
        }
    }

    fn tally(&self) -> Tally {
        let [
            ..,
            due,
            divided,
            resting,
            lent,
            held,
            staying,
            granted,
            vacating,
            closed,
        ] = self.sure.map(u64::from);
        Tally {
            due,
            divided,
            resting,
            lent,
            held,
            staying,
            granted,
            vacating,
            closed,
        }
    }

    fn share(&self) -> WorkShare {
        let [counted, current, leaving, _, wanted, order, base, ..] = self.sure.map(u64::from);
        let part = |number: u32| (number != ABSENT).then_some(u64::from(number));
        let [initialization, doubling, prediction, room] = self.maybe.map(part);
        WorkShare {
            kind: self.kind,
            order,
            wanted,
            cap: CapParts {
                base,
                initialization,
                doubling,
                prediction,
                room,
            },
            counted,
            current,
            leaving,
            tally: self.tally(),
        }
    }
}

/// The caller has checked that the number is small.
#[expect(
    clippy::cast_possible_truncation,
    reason = "asking each of a great many numbers takes longer than all else that is done with it"
)]
fn small(number: u64) -> u32 {
    debug_assert!(number >> BITS == 0, "a number that is too large: {number}");
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(number: u64) -> WorkShare {
        let mut next = number;
        let mut next = || {
            next += 1;
            next
        };
        WorkShare {
            kind: WorkKind::Service,
            order: next(),
            wanted: next(),
            cap: CapParts {
                base: next(),
                initialization: Some(next()),
                doubling: None,
                prediction: Some(next()),
                room: None,
            },
            counted: next(),
            current: next(),
            leaving: next(),
            tally: Tally {
                due: next(),
                divided: next(),
                resting: next(),
                lent: next(),
                held: next(),
                staying: next(),
                granted: next(),
                vacating: next(),
                closed: next(),
            },
        }
    }

    #[test]
    fn a_packed_share_returns_the_same_numbers_even_large_ones() {
        // A share of 17 numbers that follow this one.
        let last_small = (1 << BITS) - 18;
        for number in [0, 7, last_small, last_small + 1, 1 << 40] {
            let share = share(number);
            let packed = PackedShare::of(&share, number);
            assert_eq!(matches!(packed.0, Kept::Small(_)), number <= last_small);
            assert_eq!((packed.share(), packed.tally()), (share, share.tally));
            let counts = packed.counts();
            assert_eq!(
                (counts.counted, counts.current, counts.leaving),
                (share.counted, share.current, share.leaving)
            );
            assert_eq!((counts.order, counts.wanted), (number, share.wanted));
        }
    }
}
