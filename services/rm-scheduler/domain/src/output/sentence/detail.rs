//! Forms of the sentences in verdicts, without their numbers.

use std::{borrow::Cow, fmt};

use hayward_vocabulary::counted::{processes, quanta};

use crate::output::shares::Counts;

/// A dimension of a size that quanta do not count (D6).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum UncountedDimension {
    Memory,
    Cpu,
    Gpu,
    Other,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Detail {
    Words(Box<Cow<'static, str>>),
    ProcessGone,
    HoldsItselfBack,
    AllItCanUse,
    NoProcess,
    ItsShare,
    NoMoreRoom {
        base: u64,
    },
    Never(Box<Cow<'static, str>>),
    OthersLeaveFirst,
    RoomIsSplit,
    LacksUncounted {
        what: UncountedDimension,
        counted: bool,
    },
    FirstTask,
    DoneBefore,
    Doubles,
}

/// Numbers of the work that sentences name.
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
    pub fn words(sentence: impl Into<Cow<'static, str>>) -> Self {
        Self::Words(Box::new(sentence.into()))
    }

    pub(super) fn write(&self, named: Named, out: &mut fmt::Formatter) -> fmt::Result {
        let Named { has, due, order } = named;
        match self {
            Self::Words(words) => out.write_str(words),
            Self::ProcessGone => out.write_str("its process is gone; its owner has to ask anew"),
            Self::HoldsItselfBack => out.write_str("holds itself back: it wants no process now"),
            Self::AllItCanUse if has == 1 => out.write_str("has the one process it can use"),
            Self::AllItCanUse => write!(out, "has all {has} processes it can use"),
            Self::NoProcess => {
                let size = quanta(order);
                write!(out, "competition leaves it no process of {size}")
            }
            Self::ItsShare => write!(
                out,
                "has its share of {}; the rest belongs to others",
                processes(has)
            ),
            Self::NoMoreRoom { base } => {
                write!(out, "has {has} of {}; no more room", processes(*base))
            }
            Self::Never(why) => write!(out, "one process needs {}: {why}", quanta(order)),
            Self::OthersLeaveFirst => {
                write!(
                    out,
                    "due {}, has {has}: others have to leave first",
                    processes(due)
                )
            }
            Self::RoomIsSplit => write!(
                out,
                "due {} of {}, has {has}: the free room is split over nodes",
                processes(due),
                quanta(order)
            ),
            Self::LacksUncounted { what, counted } => {
                let what = dimension_name(*what);
                write!(
                    out,
                    "due {}, has {has}: the nearest node has quanta for another, and too little \
                     {what}",
                    processes(due)
                )?;
                if *counted {
                    return Ok(());
                }
                out.write_str(", which the quantum of the policy does not count")
            }
            Self::FirstTask => write!(
                out,
                "has {} until its first task has shown how long one takes",
                processes(has)
            ),
            Self::DoneBefore => {
                write!(
                    out,
                    "will be done before more than {} could help",
                    processes(has)
                )
            }
            Self::Doubles => write!(
                out,
                "has {} and at most doubles from round to round",
                processes(has)
            ),
        }
    }
}

fn dimension_name(what: UncountedDimension) -> &'static str {
    match what {
        UncountedDimension::Memory => "memory",
        UncountedDimension::Cpu => "cpu",
        UncountedDimension::Gpu => "gpu",
        UncountedDimension::Other => "of a named resource",
    }
}
