//! Limits of users and groups, on every level of the tree.
//!
//! An [`OwnerLimit`] limits one user or one group in one queue. An application must stay within all
//! limits on the path of its queue. Only one group of the user counts: the first one, from the
//! leaf to the root, that has a limit.

use std::{collections::BTreeMap, fmt};

use hayward_rm_scheduler_domain::snapshot::queues::Limit;

use crate::{
    queue_tree::Tree,
    resource_vec::{LimitVector, ResourceTypes, Vector},
};

const WILDCARD: &str = "*";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LimitOwner {
    User(String),
    Group(String),
}

impl fmt::Display for LimitOwner {
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

pub(crate) struct OwnerLimit {
    pub queue: usize,
    pub owner: LimitOwner,
    pub max: LimitVector,
    pub max_applications: Option<u64>,
    pub used: Vector,
    /// Part of the remaining maximum that is reserved for some work.
    pub reserved: Vector,
    /// Number of running applications.
    pub running: u64,
}

#[derive(Default)]
pub(crate) struct OwnerLimits {
    pub entries: Vec<OwnerLimit>,
    index_by_owner: BTreeMap<(usize, LimitOwner), usize>,
}

impl OwnerLimits {
    /// Returns the indices of all limits that apply to an application in this queue. Limits that no
    /// earlier application had are added.
    pub fn for_subject(
        &mut self,
        tree: &Tree,
        dims: &ResourceTypes,
        queue: usize,
        subject: LimitSubject,
    ) -> Vec<usize> {
        let LimitSubject { user, group } = subject;
        let limits = |ancestor: usize| queue_limits(tree, ancestor);
        let mut indices = Vec::new();
        for ancestor in tree.path(queue) {
            let names_user = |limit: &&Limit| limit.users.iter().any(|name| name == user);
            let has_wildcard = |limit: &&Limit| limit.users.iter().any(|it| it == WILDCARD);
            let mut user_limit = limits(ancestor).iter().filter(names_user);
            let user_limit = user_limit
                .next()
                .or_else(|| limits(ancestor).iter().find(has_wildcard));
            if let Some(limit) = user_limit {
                let owner = LimitOwner::User(user.to_owned());
                indices.push(self.find_or_insert(dims, ancestor, owner, limit));
            }
            let group_limit = group.and_then(|group| {
                let names_group = |limit: &&Limit| limit.groups.iter().any(|name| name == group);
                limits(ancestor).iter().find(names_group)
            });
            if let (Some(limit), Some(group)) = (group_limit, group) {
                let owner = LimitOwner::Group(group.to_owned());
                indices.push(self.find_or_insert(dims, ancestor, owner, limit));
            }
        }
        indices
    }

    fn find_or_insert(
        &mut self,
        dims: &ResourceTypes,
        queue: usize,
        owner: LimitOwner,
        limit: &Limit,
    ) -> usize {
        let entries = &mut self.entries;
        *self
            .index_by_owner
            .entry((queue, owner.clone()))
            .or_insert_with(|| {
                entries.push(OwnerLimit {
                    queue,
                    owner,
                    max: dims.limit_vector(&limit.max),
                    max_applications: limit.max_applications.filter(|max| *max > 0),
                    used: dims.zero(),
                    reserved: dims.zero(),
                    running: 0,
                });
                entries.len() - 1
            })
    }
}

fn queue_limits<'a>(tree: &Tree<'a>, queue: usize) -> &'a [Limit] {
    let config = tree.entries[queue].config;
    config.map_or(&[][..], |queue| &queue.limits[..])
}

/// Returns the group that counts for an application in this queue. The group that was chosen
/// earlier stays in force while a limit names it.
pub(crate) fn select_group<'a>(
    tree: &Tree<'a>,
    queue: usize,
    earlier: Option<&'a str>,
    groups: &[String],
) -> Option<&'a str> {
    let levels = || tree.path(queue).map(|queue| queue_limits(tree, queue));
    let is_named = |group: &&str| {
        let mut limits = levels().flatten();
        limits.any(|limit| limit.groups.iter().any(|name| name == group))
    };
    earlier
        .filter(is_named)
        .or_else(|| first_matching_group(levels(), groups))
}

fn first_matching_group<'a>(
    mut levels: impl Iterator<Item = &'a [Limit]>,
    groups: &[String],
) -> Option<&'a str> {
    levels.find_map(|limits| {
        let named = limits.iter().flat_map(|limit| &limit.groups);
        let mut matching = named.clone().filter(|group| groups.contains(group));
        let wildcard = || named.clone().find(|group| *group == WILDCARD);
        matching.next().or_else(wildcard).map(String::as_str)
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
        let groups = ["dev".to_owned(), "all".to_owned()];
        let leaf = [limit(&["ops"])];
        let above = [limit(&["all"]), limit(&["dev"]), limit(&["*"])];
        let levels = || [&leaf[..], &above[..]].into_iter();
        assert_eq!(first_matching_group(levels(), &groups), Some("all"));
        assert_eq!(first_matching_group(levels(), &[]), Some("*"));
        assert_eq!(first_matching_group([&leaf[..]].into_iter(), &groups), None);
    }
}
