//! What a verdict says beside its numbers.

use std::fmt;

use super::Counts;
use crate::{explain::Beside, reach::Why};

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Detail {
    Words(Box<Why>),
    ProcessGone,
    HoldsItselfBack,
    AllItCanUse,
    NoProcess,
    ItsShare,
    NoMoreRoom { base: u64 },
    Never(Box<Why>),
    OthersLeaveFirst,
    RoomIsSplit,
    LacksBeside { what: Beside, counted: bool },
    FirstTask,
    DoneBefore,
    Doubles,
}

/// The numbers of the work that sentences name.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Named {
    has: u64,
    due: u64,
    order: u64,
}

impl Named {
    pub fn of(counts: &Counts) -> Self {
        Self {
            has: counts.current,
            due: counts.counted,
            order: counts.order,
        }
    }
}

impl Detail {
    pub fn words(sentence: impl Into<Why>) -> Self {
        Self::Words(Box::new(sentence.into()))
    }

    pub fn write(&self, named: Named, out: &mut fmt::Formatter) -> fmt::Result {
        let Named { has, due, order } = named;
        match self {
            Self::Words(words) => out.write_str(words),
            Self::ProcessGone => out.write_str("its process is gone; its owner has to ask anew"),
            Self::HoldsItselfBack => out.write_str("holds itself back: it wants no process now"),
            Self::AllItCanUse => write!(out, "has all {has} processes it can use"),
            Self::NoProcess => write!(out, "competition leaves it no process of {order} quanta"),
            Self::ItsShare => write!(
                out,
                "has its share of {has} processes; the rest belongs to others"
            ),
            Self::NoMoreRoom { base } => {
                write!(out, "has {has} of {base} processes; no more room")
            }
            Self::Never(why) => write!(out, "one process needs {order} quanta: {why}"),
            Self::OthersLeaveFirst => {
                write!(
                    out,
                    "due {due} processes, has {has}: others have to leave first"
                )
            }
            Self::RoomIsSplit => write!(
                out,
                "due {due} processes of {order} quanta, has {has}: the free room is split over \
                 nodes"
            ),
            Self::LacksBeside { what, counted } => {
                let what = beside(*what);
                write!(
                    out,
                    "due {due} processes, has {has}: the nearest node has quanta for another, and \
                     too little {what}"
                )?;
                if *counted {
                    return Ok(());
                }
                out.write_str(", which the quantum of the policy does not count")
            }
            Self::FirstTask => write!(
                out,
                "has {has} processes until its first task has shown how long one takes"
            ),
            Self::DoneBefore => {
                write!(
                    out,
                    "will be done before more than {has} processes could help"
                )
            }
            Self::Doubles => write!(
                out,
                "has {has} processes and at most doubles them from round to round"
            ),
        }
    }
}

fn beside(what: Beside) -> &'static str {
    match what {
        Beside::Memory => "memory",
        Beside::Cpu => "cpu",
        Beside::Gpu => "gpu",
        Beside::Other => "of a named resource",
    }
}
