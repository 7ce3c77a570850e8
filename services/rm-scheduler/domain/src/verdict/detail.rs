//! What a verdict says in words. There are as many verdicts as there is work, and few are read:
//! what is kept is what the numbers of the work do not say, and the sentence is made where one is
//! wanted.

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

/// A part of a sentence. Most parts are the same for all, and numbers are few: putting these
/// together takes less than having each say how it wants to be written.
enum Part<'a> {
    Text(&'a str),
    Number(u64),
}

use Part::{Number, Text};

impl Detail {
    pub fn words(sentence: String) -> Self {
        Self::Words(Box::new(sentence.into()))
    }

    pub fn sentence(&self, counts: &Counts) -> String {
        // Most are no longer, so they are not moved while they grow.
        let mut sentence = String::with_capacity(80);
        let mut say = |parts: &[Part]| {
            for part in parts {
                match part {
                    Text(text) => sentence.push_str(text),
                    Number(number) => push(&mut sentence, *number),
                }
            }
        };
        let has = Number(counts.current);
        let due = Number(counts.counted);
        let order = Number(counts.order);
        match self {
            Self::Words(words) => say(&[Text(words)]),
            Self::ProcessGone => say(&[Text("its process is gone; its owner has to ask anew")]),
            Self::HoldsItselfBack => say(&[Text("holds itself back: it wants no process now")]),
            Self::AllItCanUse => say(&[Text("has all "), has, Text(" processes it can use")]),
            Self::NoProcess => {
                let none = Text("competition leaves it no process of ");
                say(&[none, order, Text(" quanta")]);
            }
            Self::ItsShare => {
                let rest = Text(" processes; the rest belongs to others");
                say(&[Text("has its share of "), has, rest]);
            }
            Self::NoMoreRoom { base } => {
                let rest = Text(" processes; no more room");
                say(&[Text("has "), has, Text(" of "), Number(*base), rest]);
            }
            Self::Never(why) => {
                say(&[
                    Text("one process needs "),
                    order,
                    Text(" quanta: "),
                    Text(why),
                ]);
            }
            Self::OthersLeaveFirst => {
                let rest = Text(": others have to leave first");
                say(&[Text("due "), due, Text(" processes, has "), has, rest]);
            }
            Self::RoomIsSplit => {
                say(&[Text("due "), due, Text(" processes of "), order]);
                let rest = Text(": the free room is split over nodes");
                say(&[Text(" quanta, has "), has, rest]);
            }
            Self::LacksBeside { what, counted } => {
                say(&[Text("due "), due, Text(" processes, has "), has]);
                say(&[
                    Text(": the nearest node has quanta for another, and too little "),
                    Text(named(*what)),
                ]);
                if !counted {
                    say(&[Text(", which the quantum of the policy does not count")]);
                }
            }
            Self::FirstTask => {
                let rest = " processes until its first task has shown how long one takes";
                say(&[Text("has "), has, Text(rest)]);
            }
            Self::DoneBefore => {
                let rest = Text(" processes could help");
                say(&[Text("will be done before more than "), has, rest]);
            }
            Self::Doubles => {
                let rest = " processes and at most doubles them from round to round";
                say(&[Text("has "), has, Text(rest)]);
            }
        }
        sentence
    }
}

fn named(what: Beside) -> &'static str {
    match what {
        Beside::Memory => "memory",
        Beside::Cpu => "cpu",
        Beside::Gpu => "gpu",
        Beside::Other => "of a named resource",
    }
}

fn push(sentence: &mut String, number: u64) {
    let digit = u8::try_from(number % 10).unwrap_or_default();
    if number >= 10 {
        push(sentence, number / 10);
    }
    sentence.push(char::from(b'0' + digit));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for number in [0, 7, 10, 909, 1_000, u64::MAX] {
            let mut written = String::new();
            push(&mut written, number);
            assert_eq!(written, number.to_string());
        }
    }
}
