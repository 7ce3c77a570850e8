//! What a verdict says in words. There are as many verdicts as there is work, and few are read:
//! what is kept is the numbers, and the sentence is made where one is wanted.

use std::fmt::{Display, Formatter, Result, Write};

use crate::{explain::Beside, reach::Why};

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Detail {
    Sentence(Box<str>),
    ProcessGone,
    HoldsItselfBack,
    AllItCanUse {
        has: u64,
    },
    NoProcess {
        order: u64,
    },
    ItsShare {
        has: u64,
    },
    NoMoreRoom {
        has: u64,
        base: u64,
    },
    Never {
        order: u64,
        why: Why,
    },
    OthersLeaveFirst {
        due: u64,
        has: u64,
    },
    RoomIsSplit {
        due: u64,
        has: u64,
        order: u64,
    },
    LacksBeside {
        due: u64,
        has: u64,
        what: Beside,
        counted: bool,
    },
    FirstTask {
        has: u64,
    },
    DoneBefore {
        has: u64,
    },
    Doubles {
        has: u64,
    },
}

impl Detail {
    pub fn sentence(&self) -> String {
        // Most are no longer, so they are not moved while they grow.
        let mut sentence = String::with_capacity(80);
        let written = write!(sentence, "{self}");
        debug_assert!(written.is_ok(), "a string takes whatever is written");
        sentence
    }
}

impl Display for Detail {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Sentence(sentence) => f.write_str(sentence),
            Self::ProcessGone => f.write_str("its process is gone; its owner has to ask anew"),
            Self::HoldsItselfBack => f.write_str("holds itself back: it wants no process now"),
            Self::AllItCanUse { has } => write!(f, "has all {has} processes it can use"),
            Self::NoProcess { order } => {
                write!(f, "competition leaves it no process of {order} quanta")
            }
            Self::ItsShare { has } => {
                write!(
                    f,
                    "has its share of {has} processes; the rest belongs to others"
                )
            }
            Self::NoMoreRoom { has, base } => {
                write!(f, "has {has} of {base} processes; no more room")
            }
            Self::Never { order, why } => write!(f, "one process needs {order} quanta: {why}"),
            Self::OthersLeaveFirst { due, has } => {
                write!(
                    f,
                    "due {due} processes, has {has}: others have to leave first"
                )
            }
            Self::RoomIsSplit { due, has, order } => {
                write!(f, "due {due} processes of {order} quanta, has {has}: ")?;
                f.write_str("the free room is split over nodes")
            }
            Self::LacksBeside {
                due,
                has,
                what,
                counted,
            } => {
                let what = match what {
                    Beside::Memory => "memory",
                    Beside::Cpu => "cpu",
                    Beside::Gpu => "gpu",
                    Beside::Other => "of a named resource",
                };
                write!(f, "due {due} processes, has {has}: ")?;
                write!(
                    f,
                    "the nearest node has quanta for another, and too little {what}"
                )?;
                let uncounted = ", which the quantum of the policy does not count";
                f.write_str(if *counted { "" } else { uncounted })
            }
            Self::FirstTask { has } => write!(
                f,
                "has {has} processes until its first task has shown how long one takes"
            ),
            Self::DoneBefore { has } => {
                write!(
                    f,
                    "will be done before more than {has} processes could help"
                )
            }
            Self::Doubles { has } => write!(
                f,
                "has {has} processes and at most doubles them from round to round"
            ),
        }
    }
}
