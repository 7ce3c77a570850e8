//! Admission of gangs: all placeholders or none, within the free space of the nodes and the limits
//! of every queue level. The functions are pure and deterministic.
//!
//! A waiting gang holds nothing, and a gang that holds something has all it needs. Two gangs
//! therefore never wait for each other (I13).

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Size};
use serde::{Deserialize, Serialize};

use crate::free_capacity::{Level, NodeSpace, max_fitting_members};
use crate::gang_policy::Admission;
use crate::ids::GroupName;
use crate::task_groups::{TaskGroup, multiply};

/// A number of members of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRequest {
    pub group: GroupName,
    /// Size of one member.
    pub size: Size,
    /// Labels that a node must have.
    pub selector: BTreeMap<String, String>,
    pub count: u32,
}

impl From<&TaskGroup> for MemberRequest {
    fn from(group: &TaskGroup) -> Self {
        Self {
            group: group.name.clone(),
            size: group.min_resource.clone(),
            selector: group.node_selector.clone(),
            count: group.min_member,
        }
    }
}

/// Members of one group that are placed on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPlacement {
    pub group: GroupName,
    pub node: NodeName,
    pub count: u32,
}

/// Why a gang is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Shortfall {
    /// A queue or user limit would be exceeded.
    Limit { name: String, types: Vec<String> },
    /// Some members of this group found no node.
    Nodes { group: GroupName, missing: u32 },
}

/// Result of an admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Complete(Vec<MemberPlacement>),
    /// In partial mode only: some members were placed and others were not.
    Partial {
        placed: Vec<MemberPlacement>,
        shortfall: Shortfall,
    },
    Waiting(Shortfall),
}

/// Places a gang, or explains why it does not fit now.
pub fn admit(
    wanted: &[MemberRequest],
    levels: &[Level],
    spaces: &[NodeSpace],
    mode: Admission,
) -> Outcome {
    let (allowed, limit_shortfall) = limit_by_levels(wanted, levels);
    if let (Admission::Atomic, Some(shortfall)) = (mode, &limit_shortfall) {
        return Outcome::Waiting(shortfall.clone());
    }
    let (placed, space_shortfall) = place_first_fit(&allowed, spaces);
    match (limit_shortfall.or(space_shortfall), mode) {
        (None, _) => Outcome::Complete(placed),
        (Some(shortfall), Admission::Partial) if !placed.is_empty() => {
            Outcome::Partial { placed, shortfall }
        }
        (Some(shortfall), _) => Outcome::Waiting(shortfall),
    }
}

/// Reduces each group to the members that all levels allow. Also returns the first shortfall.
fn limit_by_levels(
    wanted: &[MemberRequest],
    levels: &[Level],
) -> (Vec<MemberRequest>, Option<Shortfall>) {
    let mut levels = levels.to_vec();
    let mut shortfall = None;
    let mut allowed = wanted.to_vec();
    for group in &mut allowed {
        let requested = group.count;
        for level in &levels {
            let max = level.max_additional(&group.size);
            if max < requested && shortfall.is_none() {
                shortfall = Some(Shortfall::Limit {
                    name: level.name.clone(),
                    types: level.types_exceeded_by(&group.size, requested),
                });
            }
            group.count = group.count.min(max);
        }
        for level in &mut levels {
            level.used.add(&multiply(&group.size, group.count));
        }
    }
    (allowed, shortfall)
}

/// Places members by first fit over the nodes, largest group first. The work is groups × nodes,
/// independent of the number of members.
fn place_first_fit(
    wanted: &[MemberRequest],
    spaces: &[NodeSpace],
) -> (Vec<MemberPlacement>, Option<Shortfall>) {
    let mut spaces = spaces.to_vec();
    let mut total = Size::default();
    for space in &spaces {
        total.add(&space.free);
    }
    let mut by_size: Vec<&MemberRequest> = wanted.iter().collect();
    by_size.sort_by_key(|group| std::cmp::Reverse(share_ppm(&group.size, &total)));
    let (mut placed, mut shortfall) = (Vec::new(), None);
    for group in by_size {
        let mut unplaced = group.count;
        let accepting_spaces = spaces
            .iter_mut()
            .filter(|space| space.accepts(&group.selector));
        for space in accepting_spaces {
            let count = max_fitting_members(&group.size, &space.free).min(unplaced);
            if count == 0 {
                continue;
            }
            space.free.subtract(&multiply(&group.size, count));
            unplaced -= count;
            placed.push(MemberPlacement {
                group: group.group.clone(),
                node: space.node.clone(),
                count,
            });
            if unplaced == 0 {
                break;
            }
        }
        if unplaced > 0 && shortfall.is_none() {
            shortfall = Some(Shortfall::Nodes {
                group: group.group.clone(),
                missing: unplaced,
            });
        }
    }
    (placed, shortfall)
}

/// Returns the largest share of the total free space over all types, in millionths.
fn share_ppm(size: &Size, total: &Size) -> u128 {
    let fixed = [
        (size.memory_bytes, total.memory_bytes),
        (size.cpu_milli, total.cpu_milli),
        (size.gpu_milli, total.gpu_milli),
    ];
    let extras = size.extras.iter();
    let extras = extras.map(|(name, it)| (*it, total.extras.get(name).copied().unwrap_or(0)));
    let shares = fixed.into_iter().chain(extras);
    let shares =
        shares.map(|(part, total)| u128::from(part) * 1_000_000 / u128::from(total.max(1)));
    shares.max().unwrap_or(0)
}

/// Subtracts placed members from nodes and levels.
pub fn subtract_placed(
    wanted: &[MemberRequest],
    placed: &[MemberPlacement],
    levels: &mut [Level],
    spaces: &mut [NodeSpace],
) {
    for placement in placed {
        let Some(group) = wanted.iter().find(|it| it.group == placement.group) else {
            continue;
        };
        let size = multiply(&group.size, placement.count);
        for level in levels.iter_mut() {
            level.used.add(&size);
        }
        let space = spaces.iter_mut().find(|space| space.node == placement.node);
        if let Some(space) = space {
            space.free.subtract(&size);
        }
    }
}

/// Refusal of a gang that can never fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the gang never fits ({shortfall:?}); the nearest that fits has {nearest:?} members")]
pub struct TooLarge {
    #[serde(rename = "short")]
    pub shortfall: Shortfall,
    /// Members of each group that fit together, in the requested proportions.
    pub nearest: BTreeMap<GroupName, u32>,
}

/// Checks whether a gang fits empty nodes and unused limits. The check runs at once, since waiting
/// does not help.
///
/// # Errors
/// Returns the nearest gang that fits.
pub fn check_feasible(
    wanted: &[MemberRequest],
    levels: &[Level],
    nodes: &[NodeSpace],
) -> Result<(), TooLarge> {
    let mut levels = levels.to_vec();
    for level in &mut levels {
        level.used = Size::default();
    }
    match admit(wanted, &levels, nodes, Admission::Atomic) {
        Outcome::Waiting(shortfall) => Err(TooLarge {
            shortfall,
            nearest: nearest_fitting(wanted, &levels, nodes),
        }),
        Outcome::Complete(_) | Outcome::Partial { .. } => Ok(()),
    }
}

/// Scales all groups down in proportion, then fills each group. Every returned gang was checked to
/// fit.
fn nearest_fitting(
    wanted: &[MemberRequest],
    levels: &[Level],
    nodes: &[NodeSpace],
) -> BTreeMap<GroupName, u32> {
    let fits = |counts: &[u32]| {
        let mut candidate = wanted.to_vec();
        for (group, count) in candidate.iter_mut().zip(counts) {
            group.count = *count;
        }
        matches!(
            admit(&candidate, levels, nodes, Admission::Atomic),
            Outcome::Complete(_)
        )
    };
    let total: u64 = wanted.iter().map(|group| u64::from(group.count)).sum();
    let scaled_counts = |members: u64| -> Vec<u32> {
        // A gang that lacks one of its groups is a different gang. Each group therefore keeps a
        // member while that fits.
        let minimum = members.min(1);
        let scaled = |group: &MemberRequest| {
            let part = u64::from(group.count) * members / total.max(1);
            part.max(minimum)
        };
        let counts = wanted.iter().map(scaled);
        counts
            .map(|it| u32::try_from(it).unwrap_or(u32::MAX))
            .collect()
    };
    let members = largest_satisfying(total, |members| fits(&scaled_counts(members)));
    let mut counts = scaled_counts(members);
    for index in 0..counts.len() {
        let spare = u64::from(wanted[index].count - counts[index]);
        let counts_with = |additional: u64| {
            let mut counts = counts.clone();
            counts[index] += u32::try_from(additional).unwrap_or(0);
            counts
        };
        let additional = largest_satisfying(spare, |additional| fits(&counts_with(additional)));
        counts = counts_with(additional);
    }
    let groups = wanted.iter().map(|group| group.group.clone());
    groups.zip(counts).collect()
}

/// Returns the largest number found that satisfies `holds`, which 0 always does. Every candidate is
/// checked, so a non-monotonic packing may cost size but never gives a wrong result.
fn largest_satisfying(limit: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, limit + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}
