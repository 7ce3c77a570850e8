//! Admission of gangs: all placeholders or none, within the free space of the nodes and the limits
//! of every queue level. Pure and deterministic.
//!
//! A waiting gang holds nothing, and a gang that holds something has all it needs. Two gangs
//! therefore never wait for each other (I13).

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Size};
use serde::{Deserialize, Serialize};

use crate::free_capacity::{Level, NodeSpace, copies};
use crate::groups::{TaskGroup, times};
use crate::ids::GroupName;
use crate::policy::Admission;

/// A number of members of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub group: GroupName,
    pub size: Size,
    pub selector: BTreeMap<String, String>,
    pub count: u32,
}

impl From<&TaskGroup> for Wanted {
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
pub struct Placed {
    pub group: GroupName,
    pub node: NodeName,
    pub count: u32,
}

/// Why a gang is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Short {
    /// A queue or user limit would be exceeded.
    Limit { name: String, types: Vec<String> },
    /// Some members of this group found no node.
    Nodes { group: GroupName, missing: u32 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Whole(Vec<Placed>),
    /// In partial mode only: some members were placed and others were not.
    Part {
        placed: Vec<Placed>,
        short: Short,
    },
    Wait(Short),
}

/// Places a gang, or explains why it does not fit now.
pub fn admit(
    wanted: &[Wanted],
    levels: &[Level],
    spaces: &[NodeSpace],
    mode: Admission,
) -> Outcome {
    let (allowed, limited) = limit_by_levels(wanted, levels);
    if let (Admission::Atomic, Some(short)) = (mode, &limited) {
        return Outcome::Wait(short.clone());
    }
    let (placed, crowded) = pack(&allowed, spaces);
    match (limited.or(crowded), mode) {
        (None, _) => Outcome::Whole(placed),
        (Some(short), Admission::Partial) if !placed.is_empty() => Outcome::Part { placed, short },
        (Some(short), _) => Outcome::Wait(short),
    }
}

/// Returns the members of each group that all levels allow, and the first limiting level.
fn limit_by_levels(wanted: &[Wanted], levels: &[Level]) -> (Vec<Wanted>, Option<Short>) {
    let mut levels = levels.to_vec();
    let mut short = None;
    let mut allowed = wanted.to_vec();
    for group in &mut allowed {
        let requested = group.count;
        for level in &levels {
            let most = level.allows(&group.size);
            if most < requested && short.is_none() {
                short = Some(Short::Limit {
                    name: level.name.clone(),
                    types: level.exceeded_by(&group.size, requested),
                });
            }
            group.count = group.count.min(most);
        }
        for level in &mut levels {
            level.used.add(&times(&group.size, group.count));
        }
    }
    (allowed, short)
}

/// Places members by first fit over the nodes, largest group first. The work is groups × nodes,
/// independent of the number of members.
fn pack(wanted: &[Wanted], spaces: &[NodeSpace]) -> (Vec<Placed>, Option<Short>) {
    let mut spaces = spaces.to_vec();
    let mut total = Size::default();
    for space in &spaces {
        total.add(&space.free);
    }
    let mut order: Vec<&Wanted> = wanted.iter().collect();
    order.sort_by_key(|group| std::cmp::Reverse(share_ppm(&group.size, &total)));
    let (mut placed, mut short) = (Vec::new(), None);
    for group in order {
        let mut left = group.count;
        let takers = spaces
            .iter_mut()
            .filter(|space| space.takes(&group.selector));
        for space in takers {
            let count = copies(&group.size, &space.free).min(left);
            if count == 0 {
                continue;
            }
            space.free.take(&times(&group.size, count));
            left -= count;
            placed.push(Placed {
                group: group.group.clone(),
                node: space.node.clone(),
                count,
            });
            if left == 0 {
                break;
            }
        }
        if left > 0 && short.is_none() {
            short = Some(Short::Nodes {
                group: group.group.clone(),
                missing: left,
            });
        }
    }
    (placed, short)
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
        shares.map(|(part, whole)| u128::from(part) * 1_000_000 / u128::from(whole.max(1)));
    shares.max().unwrap_or(0)
}

/// Subtracts placed members from nodes and levels.
pub fn subtract(
    wanted: &[Wanted],
    placed: &[Placed],
    levels: &mut [Level],
    spaces: &mut [NodeSpace],
) {
    for part in placed {
        let Some(group) = wanted.iter().find(|it| it.group == part.group) else {
            continue;
        };
        let size = times(&group.size, part.count);
        for level in levels.iter_mut() {
            level.used.add(&size);
        }
        let space = spaces.iter_mut().find(|space| space.node == part.node);
        if let Some(space) = space {
            space.free.take(&size);
        }
    }
}

/// Refusal of a gang that can never fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the gang never fits ({short:?}); the nearest that fits has {nearest:?} members")]
pub struct TooLarge {
    pub short: Short,
    /// Members of each group that fit together, in the requested proportions.
    pub nearest: BTreeMap<GroupName, u32>,
}

/// Checks whether a gang fits empty nodes and unused limits. The check runs at once, since waiting
/// does not help.
///
/// # Errors
/// Returns the nearest gang that fits.
pub fn feasible(wanted: &[Wanted], levels: &[Level], nodes: &[NodeSpace]) -> Result<(), TooLarge> {
    let mut levels = levels.to_vec();
    for level in &mut levels {
        level.used = Size::default();
    }
    match admit(wanted, &levels, nodes, Admission::Atomic) {
        Outcome::Wait(short) => Err(TooLarge {
            short,
            nearest: nearest(wanted, &levels, nodes),
        }),
        Outcome::Whole(_) | Outcome::Part { .. } => Ok(()),
    }
}

/// Scales all groups down in proportion, then fills each group. Every returned gang was checked to
/// fit.
fn nearest(wanted: &[Wanted], levels: &[Level], nodes: &[NodeSpace]) -> BTreeMap<GroupName, u32> {
    let fits = |counts: &[u32]| {
        let mut tried = wanted.to_vec();
        for (group, count) in tried.iter_mut().zip(counts) {
            group.count = *count;
        }
        matches!(
            admit(&tried, levels, nodes, Admission::Atomic),
            Outcome::Whole(_)
        )
    };
    let total: u64 = wanted.iter().map(|group| u64::from(group.count)).sum();
    let part = |members: u64| -> Vec<u32> {
        // A gang that lacks one of its groups is a different gang. Each group therefore keeps a
        // member while that fits.
        let least = members.min(1);
        let scaled = |group: &Wanted| {
            let part = u64::from(group.count) * members / total.max(1);
            part.max(least)
        };
        let counts = wanted.iter().map(scaled);
        counts
            .map(|it| u32::try_from(it).unwrap_or(u32::MAX))
            .collect()
    };
    let members = largest(total, |members| fits(&part(members)));
    let mut counts = part(members);
    for index in 0..counts.len() {
        let spare = u64::from(wanted[index].count - counts[index]);
        let with = |more: u64| {
            let mut counts = counts.clone();
            counts[index] += u32::try_from(more).unwrap_or(0);
            counts
        };
        let more = largest(spare, |more| fits(&with(more)));
        counts = with(more);
    }
    let groups = wanted.iter().map(|group| group.group.clone());
    groups.zip(counts).collect()
}

/// Returns the largest number found that satisfies `holds`, which 0 always does. Every candidate is
/// checked, so a non-monotonic packing may cost size but never gives a wrong result.
fn largest(most: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut good, mut beyond) = (0, most + 1);
    while beyond - good > 1 {
        let middle = good + (beyond - good) / 2;
        if holds(middle) {
            good = middle;
        } else {
            beyond = middle;
        }
    }
    good
}
