//! Nodes that run the work of several users under one account (TC-26).

use hayward_node_status_api::ONLY_USERS;
use serde::Serialize;

/// Label that an agent reports its choice of accounts in.
const LABEL: &str = "hayward.run_as";

/// The account that several users share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedAccount {
    /// The account of the agent, for all users.
    Agent,
    /// The account of `run_as_uid`, for all users.
    Fixed,
    /// One account of `run_as_users`, for some users.
    Mapped,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SharedAccountNode {
    pub node: String,
    pub account: SharedAccount,
}

/// Returns the account that users share on a node with these labels.
pub fn shared_account(
    labels: &std::collections::BTreeMap<String, String>,
) -> Option<SharedAccount> {
    // One user shares an account with no other.
    let users = labels.get(ONLY_USERS);
    if users.is_some_and(|users| !users.contains(',')) {
        return None;
    }
    let value = labels.get(LABEL)?;
    // An agent of the version before reports its uid too.
    if value == "agent" || value.starts_with("agent-") {
        return Some(SharedAccount::Agent);
    }
    if value.ends_with("-shared") {
        return Some(SharedAccount::Mapped);
    }
    (value == "fixed").then_some(SharedAccount::Fixed)
}

/// A sentence about a node, or about many nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The node, or the first of them.
    pub node: String,
    pub description: String,
    pub action: &'static str,
}

/// Describes nodes with shared accounts. More than `max_separate` nodes of one kind share one
/// sentence.
pub fn problems(nodes: &[SharedAccountNode], max_separate: usize) -> Vec<Problem> {
    let kinds = [
        SharedAccount::Agent,
        SharedAccount::Fixed,
        SharedAccount::Mapped,
    ];
    kinds
        .into_iter()
        .flat_map(|kind| {
            let of_kind = nodes.iter().filter(|it| it.account == kind);
            let names: Vec<&str> = of_kind.map(|it| it.node.as_str()).collect();
            problems_of_kind(kind, &names, max_separate)
        })
        .collect()
}

fn problems_of_kind(account: SharedAccount, nodes: &[&str], max_separate: usize) -> Vec<Problem> {
    let (one, many, effect, action) = words(account);
    let problem = |node: &str, description| Problem {
        node: node.to_owned(),
        description,
        action,
    };
    if nodes.len() > max_separate {
        let first = nodes[..max_separate].join(", ");
        let description = format!("{} nodes {many}: {effect}; {first}, …", nodes.len());
        return vec![problem(nodes[0], description)];
    }
    let separate = nodes.iter();
    separate
        .map(|node| problem(node, format!("node {node} {one}: {effect}")))
        .collect()
}

/// Returns the predicate for one node and for many, the effect, and the remedy.
fn words(account: SharedAccount) -> (&'static str, &'static str, &'static str, &'static str) {
    match account {
        SharedAccount::Agent => (
            "runs everybody's work as its own account",
            "run everybody's work as their own account",
            "any user's task there can read the node's credential, other users' files and \
             environments, and act for the node",
            "run the agent as root, or let one user use it: only_users = [\"ada\"]",
        ),
        SharedAccount::Fixed => (
            "runs everybody's work as one account",
            "run everybody's work as one account",
            "any user's task there can read other users' files and environments, and end their \
             work",
            "take `run_as_uid` out of the agent's settings, so that `run_as` is `auto`",
        ),
        SharedAccount::Mapped => (
            "runs the work of several users as one account",
            "run the work of several users as one account",
            "the tasks of these users there can read each other's files and environments",
            "give each user an account in `run_as_users`, and take `shared_accounts` away",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: usize, account: SharedAccount) -> Vec<SharedAccountNode> {
        let node = |number| SharedAccountNode {
            node: format!("node-{number}"),
            account,
        };
        (1..=count).map(node).collect()
    }

    #[test]
    fn a_shared_account_follows_from_the_label() {
        for (value, expected) in [
            ("agent", Some(SharedAccount::Agent)),
            ("agent-1000", Some(SharedAccount::Agent)),
            ("fixed", Some(SharedAccount::Fixed)),
            ("auto-shared", Some(SharedAccount::Mapped)),
            ("auto", None),
            ("range", None),
            ("65534", None),
        ] {
            let labels = [(LABEL.to_owned(), value.to_owned())].into();
            assert_eq!(shared_account(&labels), expected, "{value}");
        }
        assert_eq!(shared_account(&[].into()), None);
        for (users, expected) in [("ada", None), ("ada,ben", Some(SharedAccount::Agent))] {
            let labels = [(LABEL, "agent"), (ONLY_USERS, users)];
            let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(shared_account(&labels.into()), expected, "{users}");
        }
    }

    #[test]
    fn a_node_with_one_account_for_all_is_reported_with_the_effect_and_the_remedy() {
        let found = problems(&nodes(1, SharedAccount::Agent), 5);
        let [problem] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(
            problem.description,
            "node node-1 runs everybody's work as its own account: any user's task there can read \
             the node's credential, other users' files and environments, and act for the node"
        );
        let action = "run the agent as root, or let one user use it: only_users = [\"ada\"]";
        assert_eq!(problem.action, action);
        let mut both = nodes(2, SharedAccount::Mapped);
        both.extend(nodes(1, SharedAccount::Fixed));
        assert_eq!(problems(&both, 5).len(), 3);
        let many = problems(&nodes(6, SharedAccount::Agent), 5);
        let [problem] = many.as_slice() else {
            panic!("{many:?}")
        };
        assert!(problem.description.starts_with("6 nodes run everybody's"));
        assert!(problem.description.ends_with("node-4, node-5, …"));
    }
}
