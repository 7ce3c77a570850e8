//! Free space of nodes, and limits of queues and users, as seen by admission and replacement.

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Size};
use serde::{Deserialize, Serialize};

use crate::task_groups;

/// Free space of one node in one pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpace {
    pub node: NodeName,
    pub free: Size,
    /// Whether the node accepts new work.
    pub open: bool,
    pub labels: BTreeMap<String, String>,
}

impl NodeSpace {
    pub fn new(node: NodeName, free: Size) -> Self {
        Self {
            node,
            free,
            open: true,
            labels: BTreeMap::new(),
        }
    }

    /// Returns true if the node passes all placement checks. The fit is not checked here.
    pub fn accepts(&self, selector: &BTreeMap<String, String>) -> bool {
        let has_label = |(name, value)| self.labels.get(name) == Some(value);
        self.open && selector.iter().all(has_label)
    }
}

/// Upper limits by type. A type without an entry is unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceLimits {
    pub memory_bytes: Option<u64>,
    pub cpu_milli: Option<u64>,
    pub gpu_milli: Option<u64>,
    pub extras: BTreeMap<String, u64>,
}

/// A level of the queue tree, or a user limit. A gang counts against all its levels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    pub name: String,
    pub max: ResourceLimits,
    pub used: Size,
}

impl Level {
    /// Returns the number of additional members of this size that the level allows.
    pub fn max_additional(&self, size: &Size) -> u32 {
        let (max, used) = (&self.max, &self.used);
        let fixed = [
            (size.memory_bytes, max.memory_bytes, used.memory_bytes),
            (size.cpu_milli, max.cpu_milli, used.cpu_milli),
            (size.gpu_milli, max.gpu_milli, used.gpu_milli),
        ];
        let extras = size.extras.iter().map(|(name, size)| {
            let used = used.extras.get(name).copied().unwrap_or(0);
            (*size, max.extras.get(name).copied(), used)
        });
        let allowed = fixed.into_iter().chain(extras).map(|(size, max, used)| {
            max.map_or(u32::MAX, |max| {
                count_fitting(max.saturating_sub(used), size)
            })
        });
        allowed.min().unwrap_or(u32::MAX)
    }

    /// Returns the types whose limit this many members would exceed.
    pub fn types_exceeded_by(&self, size: &Size, count: u32) -> Vec<String> {
        let mut level = self.clone();
        let wanted = task_groups::multiply(size, count);
        level.used.add(&wanted);
        let (max, used) = (&level.max, &level.used);
        let exceeded = |name: &str, max: Option<u64>, used: u64, wanted: u64| {
            let is_exceeded = wanted > 0 && max.is_some_and(|max| used > max);
            is_exceeded.then(|| name.to_owned())
        };
        let fixed = [
            exceeded(
                "memory",
                max.memory_bytes,
                used.memory_bytes,
                wanted.memory_bytes,
            ),
            exceeded("cpu", max.cpu_milli, used.cpu_milli, wanted.cpu_milli),
            exceeded("gpu", max.gpu_milli, used.gpu_milli, wanted.gpu_milli),
        ];
        let extras = wanted.extras.iter().map(|(name, wanted)| {
            let used = used.extras.get(name).copied().unwrap_or(0);
            exceeded(name, max.extras.get(name).copied(), used, *wanted)
        });
        fixed.into_iter().chain(extras).flatten().collect()
    }
}

/// Returns the number of members of this size that fit.
pub fn max_fitting_members(size: &Size, free: &Size) -> u32 {
    let fixed = [
        (size.memory_bytes, free.memory_bytes),
        (size.cpu_milli, free.cpu_milli),
        (size.gpu_milli, free.gpu_milli),
    ];
    let extras = size.extras.iter();
    let extras = extras.map(|(name, it)| (*it, free.extras.get(name).copied().unwrap_or(0)));
    let each = fixed.into_iter().chain(extras);
    let fewest = each.map(|(size, free)| count_fitting(free, size)).min();
    fewest.unwrap_or(u32::MAX)
}

fn count_fitting(space: u64, size: u64) -> u32 {
    let count = space.checked_div(size).unwrap_or(u64::MAX);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the types of `size` that do not fit. A type that the node does not offer counts as 0.
pub fn types_that_do_not_fit(size: &Size, space: &Size) -> Vec<String> {
    let fixed = [
        ("memory", size.memory_bytes, space.memory_bytes),
        ("cpu", size.cpu_milli, space.cpu_milli),
        ("gpu", size.gpu_milli, space.gpu_milli),
    ];
    let extras = size.extras.iter().map(|(name, it)| {
        let space = space.extras.get(name).copied().unwrap_or(0);
        (name.as_str(), *it, space)
    });
    let found = fixed
        .into_iter()
        .chain(extras)
        .filter(|(_, size, space)| size > space);
    found.map(|(name, _, _)| name.to_owned()).collect()
}
