//! Describes the smallest change that would end a wait, as an instruction for people.

use hayward_vocabulary::launch::ENGINE;
use hayward_vocabulary::{Unblock, plural};

use super::format::format_bytes;

/// Describes the smallest change that would let one more process of the work start.
pub fn describe_unblock(change: &Unblock) -> String {
    match change {
        // The scheduler has reserved the space already.
        Unblock::Wait {
            leaving_processes: 0,
        } => "wait: space is reserved for it".to_owned(),
        Unblock::Wait {
            leaving_processes: 1,
        } => "wait: a process that is leaving makes room".to_owned(),
        Unblock::Wait { leaving_processes } => {
            format!("wait: {leaving_processes} processes that are leaving make room")
        }
        Unblock::FreeRoom { node, quanta } => {
            format!("free {} more on {node}", plural::quanta(*quanta))
        }
        Unblock::RaiseAllotment { bytes } => {
            format!("raise its owner's allotment by {}", format_bytes(*bytes))
        }
        Unblock::AskForLess { quanta } => {
            format!("ask for at most {} a process", plural::quanta(*quanta))
        }
        Unblock::AddNode { quanta } => {
            format!("add a node of at least {}", plural::quanta(*quanta))
        }
        Unblock::OfferResource { name } => match name.strip_prefix("mount:") {
            Some(mount) => format!("list {mount} in `mounts` of its pool in the policy"),
            None if name == ENGINE => "add a node whose agent has a container engine".to_owned(),
            None => format!("add a node that offers {name}"),
        },
        Unblock::OpenNode { node } => {
            format!("let {node} take work again: unblock it, vary it on, or bring it back")
        }
        Unblock::ListNode { node } => format!("put {node} into its list of machines"),
        Unblock::RaiseShare { quanta } => {
            format!("give its class {} more", plural::quanta(*quanta))
        }
        Unblock::RaisePreemptionBudget { user, percent } => {
            let scope = if *user { "user" } else { "pool" };
            format!("wait, or set `preemption_{scope}_percent_per_hour` of the policy to {percent}")
        }
        Unblock::NameClass => "name a class that may serve it".to_owned(),
        Unblock::Unknown => "something this version of the command has no words for".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::NodeName;

    use super::*;

    #[test]
    fn an_unblock_is_described_as_an_instruction() {
        assert_eq!(
            describe_unblock(&Unblock::RaiseAllotment { bytes: 3 << 29 }),
            "raise its owner's allotment by 1.5 GiB"
        );
        let node = NodeName::new("n1").unwrap();
        assert_eq!(
            describe_unblock(&Unblock::FreeRoom { node, quanta: 1 }),
            "free 1 quantum more on n1"
        );
    }
}
