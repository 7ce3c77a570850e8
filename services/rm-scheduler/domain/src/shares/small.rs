//! The share of a piece of work as it is kept: there are as many as there is work, and their
//! numbers are mostly small.

use hayward_vocabulary::WorkKind;

use crate::plan::{CapParts, Tally, WorkShare};

pub(super) enum Kept {
    Small(Small),
    Large(Box<WorkShare>),
}

impl From<WorkShare> for Kept {
    fn from(share: WorkShare) -> Self {
        match Small::of(&share) {
            Some(small) => Self::Small(small),
            None => Self::Large(Box::new(share)),
        }
    }
}

impl Kept {
    pub fn share(&self) -> WorkShare {
        match self {
            Self::Small(small) => small.share(),
            Self::Large(share) => **share,
        }
    }
}

/// Stands for a part that is absent, so no number in here is as large.
const ABSENT: u32 = u32::MAX;
/// So many bits has the largest of them.
const BITS: u32 = u32::BITS - 1;
/// Numbers of a share.
const LEN: usize = 19;

pub(super) struct Small {
    kind: WorkKind,
    numbers: [u32; LEN],
}

impl Small {
    /// None where some number is too large.
    fn of(share: &WorkShare) -> Option<Self> {
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
            order,
            wanted,
            cap.base,
            counted,
            current,
            leaving,
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
        let absent = [cap.initialization, cap.doubling, cap.prediction, cap.room];
        // Looking at all at once costs less than asking at each whether to go on.
        let maybe = absent.map(Option::unwrap_or_default);
        let bits = sure
            .into_iter()
            .chain(maybe)
            .fold(0, |all, number| all | number);
        if bits >> BITS != 0 {
            return None;
        }
        let small = |number: u64| u32::try_from(number).unwrap_or(ABSENT);
        let mut numbers = [ABSENT; LEN];
        let (here, maybe) = numbers.split_at_mut(sure.len());
        here.copy_from_slice(&sure.map(small));
        maybe.copy_from_slice(&absent.map(|number| number.map_or(ABSENT, small)));
        Some(Self { kind, numbers })
    }

    fn share(&self) -> WorkShare {
        let [sure @ .., initialization, doubling, prediction, room] = self.numbers;
        let part = |number: u32| (number != ABSENT).then_some(u64::from(number));
        let [
            order,
            wanted,
            base,
            counted,
            current,
            leaving,
            due,
            divided,
            resting,
            lent,
            held,
            staying,
            granted,
            vacating,
            closed,
        ] = sure.map(u64::from);
        WorkShare {
            kind: self.kind,
            order,
            wanted,
            cap: CapParts {
                base,
                initialization: part(initialization),
                doubling: part(doubling),
                prediction: part(prediction),
                room: part(room),
            },
            counted,
            current,
            leaving,
            tally: Tally {
                due,
                divided,
                resting,
                lent,
                held,
                staying,
                granted,
                vacating,
                closed,
            },
        }
    }
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
    fn a_share_comes_back_as_it_was_also_where_a_number_is_large() {
        // A share of 17 numbers that follow this one.
        let last_small = (1 << BITS) - 18;
        for number in [0, 7, last_small, last_small + 1, 1 << 40] {
            let share = share(number);
            let kept = Kept::from(share);
            assert_eq!(matches!(kept, Kept::Small(_)), number <= last_small);
            assert_eq!(kept.share(), share);
        }
    }
}
