//! Resources as dense vectors: one place for each type that occurs in a pool, so that the many
//! comparisons of a round are comparisons of numbers. The first place is the order in quanta, which
//! nodes have and no queue limits.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::snapshot::queues::Amounts;
use hayward_vocabulary::Size;

/// The type of the first place; no configuration can name it.
const ORDER: &str = "";
const MEMORY: usize = 1;
const VCORE: usize = 2;
const GPU: usize = 3;

/// As many of each type as the places of a vector say.
pub(crate) type Vector = Vec<u64>;
/// Limits: a type without one is unlimited.
pub(crate) type Sparse = Vec<Option<u64>>;

#[derive(Debug, Clone)]
pub(crate) struct Dims {
    names: Vec<String>,
    extras: BTreeMap<String, usize>,
}

impl Dims {
    /// `extras` are types beyond those that every size has.
    pub fn of(extras: &BTreeSet<&str>) -> Self {
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

    /// A type that nothing has or asks for limits nothing.
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

/// The first type of which one more would be too much: its place. What is not asked for is never
/// too much, however much there is already.
pub(crate) fn over(max: &[Option<u64>], used: &[u64], ask: &[u64]) -> Option<usize> {
    let all = max.iter().zip(used).zip(ask).enumerate();
    all.filter(|(_, (_, ask))| **ask > 0)
        .find(|(_, ((max, used), ask))| max.is_some_and(|max| used.saturating_add(**ask) > max))
        .map(|(at, _)| at)
}

/// Both have some of one type.
pub(crate) fn share_a_type(a: &[u64], b: &[u64]) -> bool {
    a.iter().zip(b).skip(1).any(|(a, b)| *a > 0 && *b > 0)
}
