//! Limits of users and groups, on every level of the tree.
//!
//! A gate is the limit of one user or one group in one queue. An application must pass all gates of
//! its path. Only one group of the user counts: the first one, from the leaf to the root, that has
//! a limit.

use std::{collections::BTreeMap, fmt};

use hayward_rm_scheduler_domain::snapshot::queues::Limit;

use crate::{
    resource_vec::{ResourceTypes, Sparse, Vector},
    tree::Tree,
};

const WILDCARD: &str = "*";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GateOwner {
    User(String),
    Group(String),
}

impl fmt::Display for GateOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user {name}"),
            Self::Group(name) if name == WILDCARD => f.write_str("users without a group"),
            Self::Group(name) => write!(f, "group {name}"),
        }
    }
}

/// The user and the group whose limits apply to an application.
#[derive(Clone, Copy)]
pub(crate) struct LimitSubject<'a> {
    pub user: &'a str,
    /// Name of the group that counts. `None` if the user has no group with limits.
    pub group: Option<&'a str>,
}

pub(crate) struct Gate {
    pub queue: usize,
    pub owner: GateOwner,
    pub max: Sparse,
    pub max_applications: Option<u64>,
    pub used: Vector,
    /// Reserved part of the rest.
    pub reserved: Vector,
    pub running: u64,
}

#[derive(Default)]
pub(crate) struct Gates {
    pub gates: Vec<Gate>,
    known: BTreeMap<(usize, GateOwner), usize>,
}

impl Gates {
    /// Returns all gates that an application in this queue must pass.
    pub fn for_subject(
        &mut self,
        tree: &Tree,
        dims: &ResourceTypes,
        queue: usize,
        subject: LimitSubject,
    ) -> Vec<usize> {
        let LimitSubject { user, group } = subject;
        let limits = |at: usize| limits_of(tree, at);
        let mut all = Vec::new();
        for at in tree.path(queue) {
            let named = |limit: &&Limit| limit.users.iter().any(|known| known == user);
            let wildcard = |limit: &&Limit| limit.users.iter().any(|it| it == WILDCARD);
            let mut of_user = limits(at).iter().filter(named);
            let of_user = of_user.next().or_else(|| limits(at).iter().find(wildcard));
            if let Some(limit) = of_user {
                let owner = GateOwner::User(user.to_owned());
                all.push(self.gate(dims, at, owner, limit));
            }
            let of_group = group.and_then(|group| {
                let named = |limit: &&Limit| limit.groups.iter().any(|known| known == group);
                limits(at).iter().find(named)
            });
            if let (Some(limit), Some(group)) = (of_group, group) {
                let owner = GateOwner::Group(group.to_owned());
                all.push(self.gate(dims, at, owner, limit));
            }
        }
        all
    }

    fn gate(
        &mut self,
        dims: &ResourceTypes,
        queue: usize,
        owner: GateOwner,
        limit: &Limit,
    ) -> usize {
        let gates = &mut self.gates;
        *self.known.entry((queue, owner.clone())).or_insert_with(|| {
            gates.push(Gate {
                queue,
                owner,
                max: dims.sparse(&limit.max),
                max_applications: limit.max_applications.filter(|most| *most > 0),
                used: dims.zero(),
                reserved: dims.zero(),
                running: 0,
            });
            gates.len() - 1
        })
    }
}

fn limits_of<'a>(tree: &Tree<'a>, queue: usize) -> &'a [Limit] {
    let config = tree.entries[queue].config;
    config.map_or(&[][..], |queue| &queue.limits[..])
}

/// Returns the group that counts for an application in this queue. An earlier choice stays in force
/// while a limit names the group.
pub(crate) fn group_of<'a>(
    tree: &Tree<'a>,
    queue: usize,
    earlier: Option<&'a str>,
    groups: &[String],
) -> Option<&'a str> {
    let levels = || tree.path(queue).map(|at| limits_of(tree, at));
    let named = |group: &&str| {
        let mut limits = levels().flatten();
        limits.any(|limit| limit.groups.iter().any(|known| known == group))
    };
    earlier.filter(named).or_else(|| chosen(levels(), groups))
}

fn chosen<'a>(mut levels: impl Iterator<Item = &'a [Limit]>, groups: &[String]) -> Option<&'a str> {
    levels.find_map(|limits| {
        let named = limits.iter().flat_map(|limit| &limit.groups);
        let mut mine = named.clone().filter(|group| groups.contains(group));
        let wildcard = || named.clone().find(|group| *group == WILDCARD);
        mine.next().or_else(wildcard).map(String::as_str)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_level_with_an_entry_selects_the_group() {
        let limit = |groups: &[&str]| Limit {
            groups: groups.iter().map(|it| (*it).to_owned()).collect(),
            ..Limit::default()
        };
        let mine = ["dev".to_owned(), "all".to_owned()];
        let leaf = [limit(&["ops"])];
        let above = [limit(&["all"]), limit(&["dev"]), limit(&["*"])];
        let levels = || [&leaf[..], &above[..]].into_iter();
        assert_eq!(chosen(levels(), &mine), Some("all"));
        assert_eq!(chosen(levels(), &[]), Some("*"));
        assert_eq!(chosen([&leaf[..]].into_iter(), &mine), None);
    }
}
