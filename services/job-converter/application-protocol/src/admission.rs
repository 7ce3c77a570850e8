//! Admission of gangs (17.1): all placeholders or none, over the free room of the nodes and every
//! level of the queue. Pure: the same gang and the same room give the same answer.
//!
//! A gang that waits holds nothing. So whoever holds something has all it needs to go on, and two
//! gangs can never wait for each other (I13, W10).

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Size};
use serde::{Deserialize, Serialize};

use crate::free_capacity::{Level, Room, copies};
use crate::groups::{TaskGroup, times};
use crate::ids::GroupName;
use crate::policy::Admission;

/// So many of one size.
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

/// So many of one group on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub group: GroupName,
    pub node: NodeName,
    pub count: u32,
}

/// What is in the way, with its numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Short {
    /// A queue or a user would go above its limit.
    Limit { name: String, types: Vec<String> },
    /// So many of this group find no node.
    Nodes { group: GroupName, missing: u32 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Whole(Vec<Placed>),
    /// Of the partial mode alone.
    Part {
        placed: Vec<Placed>,
        short: Short,
    },
    Wait(Short),
}

/// Where a gang goes now, if it does.
pub fn admit(wanted: &[Wanted], levels: &[Level], rooms: &[Room], mode: Admission) -> Outcome {
    let (allowed, limited) = within(wanted, levels);
    if let (Admission::Atomic, Some(short)) = (mode, &limited) {
        return Outcome::Wait(short.clone());
    }
    let (placed, crowded) = pack(&allowed, rooms);
    match (limited.or(crowded), mode) {
        (None, _) => Outcome::Whole(placed),
        (Some(short), Admission::Partial) if !placed.is_empty() => Outcome::Part { placed, short },
        (Some(short), _) => Outcome::Wait(short),
    }
}

/// As many of each group as every level allows, and the first level that allows fewer.
fn within(wanted: &[Wanted], levels: &[Level]) -> (Vec<Wanted>, Option<Short>) {
    let mut levels = levels.to_vec();
    let mut short = None;
    let mut allowed = wanted.to_vec();
    for group in &mut allowed {
        let asked = group.count;
        for level in &levels {
            let most = level.allows(&group.size);
            if most < asked && short.is_none() {
                short = Some(Short::Limit {
                    name: level.name.clone(),
                    types: level.exceeded_by(&group.size, asked),
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

/// First fit by whole nodes, the largest group first: work is groups × nodes, whatever the counts.
fn pack(wanted: &[Wanted], rooms: &[Room]) -> (Vec<Placed>, Option<Short>) {
    let mut rooms = rooms.to_vec();
    let mut total = Size::default();
    for room in &rooms {
        total.add(&room.free);
    }
    let mut order: Vec<&Wanted> = wanted.iter().collect();
    order.sort_by_key(|group| std::cmp::Reverse(share_ppm(&group.size, &total)));
    let (mut placed, mut short) = (Vec::new(), None);
    for group in order {
        let mut left = group.count;
        let takers = rooms.iter_mut().filter(|room| room.takes(&group.selector));
        for room in takers {
            let count = copies(&group.size, &room.free).min(left);
            if count == 0 {
                continue;
            }
            room.free.take(&times(&group.size, count));
            left -= count;
            placed.push(Placed {
                group: group.group.clone(),
                node: room.node.clone(),
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

/// The largest part of all room that one of these takes, in millionths.
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

/// Takes from rooms and levels what was placed.
pub fn book(wanted: &[Wanted], placed: &[Placed], levels: &mut [Level], rooms: &mut [Room]) {
    for part in placed {
        let Some(group) = wanted.iter().find(|it| it.group == part.group) else {
            continue;
        };
        let size = times(&group.size, part.count);
        for level in levels.iter_mut() {
            level.used.add(&size);
        }
        let room = rooms.iter_mut().find(|room| room.node == part.node);
        if let Some(room) = room {
            room.free.take(&size);
        }
    }
}

/// A gang that no wait can help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the gang never fits ({short:?}); the nearest that does has {nearest:?} members")]
pub struct TooLarge {
    pub short: Short,
    /// Members of each group that fit together, in the proportions that were asked for.
    pub nearest: BTreeMap<GroupName, u32>,
}

/// Whether a gang fits at all: the limits with nothing used, the nodes with nothing on them. Said
/// at once, as waiting does not help.
///
/// # Errors
/// When it does not, with the nearest gang that does.
pub fn feasible(wanted: &[Wanted], levels: &[Level], nodes: &[Room]) -> Result<(), TooLarge> {
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

/// First in proportion, then each group alone as far as it goes. What is returned has been tried.
fn nearest(wanted: &[Wanted], levels: &[Level], nodes: &[Room]) -> BTreeMap<GroupName, u32> {
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
        // A group that is left out makes another gang, so each keeps one while that fits.
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

/// The largest number found that holds, 0 being known to; each one was tried, so that a packing
/// that is not monotonous costs a little size and never a wrong answer.
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
