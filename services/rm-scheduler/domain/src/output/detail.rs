//! Sentences of verdicts. A [`Detail`] is stored as a template, and the numbers are filled in when
//! a verdict is read.

use std::borrow::Cow;

use hayward_vocabulary::plural::{processes, quanta};

use crate::output::shares::Counts;

/// Dimension of which a node lacks an amount, although it has enough quanta (D6).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LackingDimension {
    Memory,
    Cpu,
    Gpu,
    Other,
}

/// One sentence of a verdict, without its numbers. [`Detail::sentence`] has the texts.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Detail {
    Text(Box<Cow<'static, str>>),
    ProcessLost,
    WantsNoProcess,
    HasAllUsable,
    NoProcess,
    AtFairShare,
    NoMoreSpace {
        /// Number of processes that the work wants.
        base: u64,
    },
    CannotFit(Box<Cow<'static, str>>),
    OthersLeaveFirst,
    SpaceIsSplit,
    LacksDimension {
        dimension: LackingDimension,
        /// True if the quantum counts the dimension.
        counted: bool,
    },
    /// The work waits for its first task.
    FirstTask,
    /// The tasks will be done before more processes could help.
    EndsSooner,
    /// The number of processes at most doubles in each round.
    Doubles,
}

impl Detail {
    pub fn text(sentence: impl Into<Cow<'static, str>>) -> Self {
        Self::Text(Box::new(sentence.into()))
    }

    /// Returns one sentence for users, with the numbers of the work.
    pub fn sentence(&self, counts: &Counts) -> String {
        let (current, due) = (counts.current, counts.counted);
        let process_size = quanta(counts.quanta);
        match self {
            Self::Text(text) => text.to_string(),
            Self::ProcessLost => "its process is gone; its owner has to ask anew".to_owned(),
            Self::WantsNoProcess => "holds itself back: it wants no process now".to_owned(),
            Self::HasAllUsable if current == 1 => "has the one process it can use".to_owned(),
            Self::HasAllUsable => format!("has all {current} processes it can use"),
            Self::NoProcess => format!("competition leaves it no process of {process_size}"),
            Self::AtFairShare => format!(
                "has its share of {}; the rest belongs to others",
                processes(current)
            ),
            Self::NoMoreSpace { base } => {
                format!("has {current} of {}; no more room", processes(*base))
            }
            Self::CannotFit(cause) => format!("one process needs {process_size}: {cause}"),
            Self::OthersLeaveFirst => {
                format!(
                    "due {}, has {current}: others have to leave first",
                    processes(due)
                )
            }
            Self::SpaceIsSplit => format!(
                "due {} of {process_size}, has {current}: the free room is split over nodes",
                processes(due)
            ),
            Self::LacksDimension { dimension, counted } => {
                let dimension = dimension_name(*dimension);
                let uncounted = ", which the quantum of the policy does not count";
                format!(
                    "due {}, has {current}: the nearest node has quanta for another, and too \
                     little {dimension}{}",
                    processes(due),
                    if *counted { "" } else { uncounted }
                )
            }
            Self::FirstTask => format!(
                "has {} until its first task has shown how long one takes",
                processes(current)
            ),
            Self::EndsSooner => format!(
                "will be done before more than {} could help",
                processes(current)
            ),
            Self::Doubles => format!(
                "has {} and at most doubles from round to round",
                processes(current)
            ),
        }
    }
}

fn dimension_name(dimension: LackingDimension) -> &'static str {
    match dimension {
        LackingDimension::Memory => "memory",
        LackingDimension::Cpu => "cpu",
        LackingDimension::Gpu => "gpu",
        LackingDimension::Other => "of a named resource",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_the_numbers_of_its_work() {
        let counts = Counts {
            counted: 3,
            current: 2,
            leaving: 0,
            quanta: 7,
            wanted: 9,
        };
        let expected = "due 3 processes of 7 quanta, has 2: the free room is split over nodes";
        assert_eq!(Detail::SpaceIsSplit.sentence(&counts), expected);
    }
}
