//! Resources as dense vectors with one position per resource type of a pool. The first position is
//! the number of quanta. Nodes have quanta, but queues do not limit them.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::snapshot::queues::Amounts;
use hayward_vocabulary::Size;

/// Name of the first position; no configuration can use it.
const ORDER: &str = "";
const MEMORY: usize = 1;
const VCORE: usize = 2;
const GPU: usize = 3;

/// Amounts by position.
pub(crate) type Vector = Vec<u64>;
/// Limits by position. `None` means unlimited.
pub(crate) type Sparse = Vec<Option<u64>>;

#[derive(Debug, Clone)]
pub(crate) struct ResourceTypes {
    names: Vec<String>,
    extras: BTreeMap<String, usize>,
}

impl ResourceTypes {
    /// Creates the types of a pool. `extras` are types that not every size has.
    pub fn new(extras: &BTreeSet<&str>) -> Self {
        let known = [ORDER, "memory", "vcore", "gpu"];
        let mut names: Vec<String> = known.map(str::to_owned).into();
        let others = extras.iter().filter(|name| !known.contains(name));
        names.extend(others.map(|name| (*name).to_owned()));
        let places = names.iter().cloned().enumerate().skip(known.len());
        let extras = places.map(|(at, name)| (name, at)).collect();
        Self { names, extras }
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn name(&self, at: usize) -> &str {
        &self.names[at]
    }

    pub fn zero(&self) -> Vector {
        vec![0; self.len()]
    }

    pub fn vector(&self, order: u64, size: &Size) -> Vector {
        let mut vector = self.zero();
        vector[0] = order;
        vector[MEMORY] = size.memory_bytes;
        vector[VCORE] = size.cpu_milli;
        vector[GPU] = size.gpu_milli;
        for (name, amount) in &size.extras {
            if let Some(at) = self.extras.get(name) {
                vector[*at] = *amount;
            }
        }
        vector
    }

    fn place(&self, name: &str) -> Option<usize> {
        match name {
            "memory" => Some(MEMORY),
            "vcore" => Some(VCORE),
            "gpu" => Some(GPU),
            other => self.extras.get(other).copied(),
        }
    }

    /// Limits on types that the pool does not use are dropped.
    pub fn sparse(&self, amounts: &Amounts) -> Sparse {
        let mut sparse = vec![None; self.len()];
        for (name, amount) in amounts {
            if let Some(at) = self.place(name) {
                sparse[at] = Some(*amount);
            }
        }
        sparse
    }

    pub fn amounts(&self, vector: &[u64]) -> Amounts {
        let named = self.names.iter().zip(vector).skip(1);
        let some = named.filter(|(_, amount)| **amount > 0);
        some.map(|(name, amount)| (name.clone(), *amount)).collect()
    }
}

pub(crate) fn add(to: &mut [u64], what: &[u64]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to = to.saturating_add(*what);
    }
}

pub(crate) fn take(from: &mut [u64], what: &[u64]) {
    for (from, what) in from.iter_mut().zip(what) {
        *from = from.saturating_sub(*what);
    }
}

pub(crate) fn times(vector: &[u64], count: u64) -> Vector {
    vector.iter().map(|it| it.saturating_mul(count)).collect()
}

/// Returns the position of the first exceeded limit. A type that is not needed is never exceeded.
pub(crate) fn over(max: &[Option<u64>], used: &[u64], needed: &[u64]) -> Option<usize> {
    let all = max.iter().zip(used).zip(needed).enumerate();
    all.filter(|(_, (_, needed))| **needed > 0)
        .find(|(_, ((max, used), needed))| {
            max.is_some_and(|max| used.saturating_add(**needed) > max)
        })
        .map(|(at, _)| at)
}

/// Returns true if both need some of the same type.
pub(crate) fn share_a_type(a: &[u64], b: &[u64]) -> bool {
    a.iter().zip(b).skip(1).any(|(a, b)| *a > 0 && *b > 0)
}
