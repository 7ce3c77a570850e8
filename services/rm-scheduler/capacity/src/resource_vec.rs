//! Resources as vectors with one position per resource type of a pool. The first position is
//! the number of quanta. Nodes have quanta, but queues do not limit them.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::snapshot::queues::Amounts;
use hayward_vocabulary::Size;

/// Name of the position of quanta; no configuration can use it.
const QUANTA_NAME: &str = "";
/// Position of the number of quanta.
pub(crate) const QUANTA: usize = 0;
/// Position of bytes of memory.
const MEMORY: usize = 1;
/// Position of thousandths of vcores.
const VCORE: usize = 2;
/// Position of thousandths of gpus.
pub(crate) const GPU: usize = 3;

/// Amounts by position.
pub(crate) type Vector = Vec<u64>;
/// Limits by position. `None` means unlimited.
pub(crate) type LimitVector = Vec<Option<u64>>;

/// Resource types of a pool. Positions 1 to 3 are memory, vcores and gpus.
#[derive(Debug, Clone)]
pub(crate) struct ResourceTypes {
    names: Vec<String>,
    /// Position of each type that not every size has.
    extras: BTreeMap<String, usize>,
}

impl ResourceTypes {
    /// Creates the types of a pool. `extras` are types that not every size has.
    pub fn new(extras: &BTreeSet<&str>) -> Self {
        let standard = [QUANTA_NAME, "memory", "vcore", "gpu"];
        let mut names: Vec<String> = standard.map(str::to_owned).into();
        let others = extras.iter().filter(|name| !standard.contains(name));
        names.extend(others.map(|name| (*name).to_owned()));
        let positions = names.iter().cloned().enumerate().skip(standard.len());
        let extras = positions.map(|(position, name)| (name, position)).collect();
        Self { names, extras }
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn name(&self, position: usize) -> &str {
        &self.names[position]
    }

    pub fn zero(&self) -> Vector {
        vec![0; self.len()]
    }

    pub fn vector(&self, quanta: u64, size: &Size) -> Vector {
        let mut vector = self.zero();
        vector[QUANTA] = quanta;
        vector[MEMORY] = size.memory_bytes;
        vector[VCORE] = size.cpu_milli;
        vector[GPU] = size.gpu_milli;
        for (name, amount) in &size.extras {
            if let Some(position) = self.extras.get(name) {
                vector[*position] = *amount;
            }
        }
        vector
    }

    fn position(&self, name: &str) -> Option<usize> {
        match name {
            "memory" => Some(MEMORY),
            "vcore" => Some(VCORE),
            "gpu" => Some(GPU),
            other => self.extras.get(other).copied(),
        }
    }

    /// Returns the limits by position. Limits on types that the pool does not use are dropped.
    pub fn limit_vector(&self, amounts: &Amounts) -> LimitVector {
        let mut limits = vec![None; self.len()];
        for (name, amount) in amounts {
            if let Some(position) = self.position(name) {
                limits[position] = Some(*amount);
            }
        }
        limits
    }

    pub fn amounts(&self, vector: &[u64]) -> Amounts {
        let named = self.names.iter().zip(vector).skip(1);
        let nonzero = named.filter(|(_, amount)| **amount > 0);
        nonzero
            .map(|(name, amount)| (name.clone(), *amount))
            .collect()
    }
}

pub(crate) fn add(target: &mut [u64], amounts: &[u64]) {
    for (target, amounts) in target.iter_mut().zip(amounts) {
        *target = target.saturating_add(*amounts);
    }
}

pub(crate) fn subtract(target: &mut [u64], amounts: &[u64]) {
    for (target, amounts) in target.iter_mut().zip(amounts) {
        *target = target.saturating_sub(*amounts);
    }
}

pub(crate) fn scale(vector: &[u64], count: u64) -> Vector {
    vector.iter().map(|it| it.saturating_mul(count)).collect()
}

/// Returns the position of the first exceeded limit. A type that is not needed is never exceeded.
pub(crate) fn first_exceeded(max: &[Option<u64>], used: &[u64], needed: &[u64]) -> Option<usize> {
    let limits = max.iter().zip(used).zip(needed).enumerate();
    limits
        .filter(|(_, (_, needed))| **needed > 0)
        .find(|(_, ((max, used), needed))| {
            max.is_some_and(|max| used.saturating_add(**needed) > max)
        })
        .map(|(position, _)| position)
}

/// Returns true if both vectors have some of the same type. Quanta do not count.
pub(crate) fn have_common_type(a: &[u64], b: &[u64]) -> bool {
    a.iter().zip(b).skip(1).any(|(a, b)| *a > 0 && *b > 0)
}
