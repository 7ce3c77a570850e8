//! Sizes: vectors of integer amounts of resources, and the quantum in which they are counted. A
//! size fits if it fits in every dimension. Shares are counted in quanta (D6).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub const GIB: u64 = 1 << 30;

/// How much of each resource: bytes of memory, thousandths of a cpu and of a gpu, named extras.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Bytes.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Thousandths of a cpu.
    #[serde(default)]
    pub cpu_milli: u64,
    /// Thousandths of a gpu.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gpu_milli: u64,
    /// Anything else that is counted, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extras: BTreeMap<String, u64>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(amount: &u64) -> bool {
    *amount == 0
}

impl Size {
    pub fn memory(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            ..Self::default()
        }
    }

    /// True if `space` has enough in every dimension of `self`.
    pub fn fits(&self, space: &Self) -> bool {
        self.memory_bytes <= space.memory_bytes
            && self.cpu_milli <= space.cpu_milli
            && self.gpu_milli <= space.gpu_milli
            && self
                .extras
                .iter()
                .all(|(name, amount)| *amount <= space.extras.get(name).copied().unwrap_or(0))
    }

    /// Adds every dimension and saturates at the maximum.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        self.cpu_milli = self.cpu_milli.saturating_add(other.cpu_milli);
        self.gpu_milli = self.gpu_milli.saturating_add(other.gpu_milli);
        // Extras are rare.
        if !other.extras.is_empty() {
            self.add_extras(other);
        }
    }

    fn add_extras(&mut self, other: &Self) {
        for (name, amount) in &other.extras {
            let amount_here = self.extras.entry(name.clone()).or_default();
            *amount_here = amount_here.saturating_add(*amount);
        }
    }

    /// Subtracts every dimension and saturates at zero: an over-committed node has no free space
    ///
    #[inline]
    pub fn subtract(&mut self, other: &Self) {
        self.memory_bytes = self.memory_bytes.saturating_sub(other.memory_bytes);
        self.cpu_milli = self.cpu_milli.saturating_sub(other.cpu_milli);
        self.gpu_milli = self.gpu_milli.saturating_sub(other.gpu_milli);
        if !other.extras.is_empty() {
            self.subtract_extras(other);
        }
    }

    fn subtract_extras(&mut self, other: &Self) {
        for (name, amount) in &other.extras {
            if let Some(amount_here) = self.extras.get_mut(name) {
                *amount_here = amount_here.saturating_sub(*amount);
            }
        }
    }
}

/// The unit that shares are counted in. The default has memory only, so shares are shares of
/// memory. With more dimensions, the largest one counts, as in dominant resource fairness.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Size)]
pub struct Quantum(pub Size);

impl Default for Quantum {
    fn default() -> Self {
        Self(Size::memory(GIB))
    }
}

impl Quantum {
    fn per_dimension<'a>(&'a self, size: &'a Size) -> impl Iterator<Item = (u64, u64)> + 'a {
        let unit = &self.0;
        [
            (size.memory_bytes, unit.memory_bytes),
            (size.cpu_milli, unit.cpu_milli),
            (size.gpu_milli, unit.gpu_milli),
        ]
        .into_iter()
        .chain(
            unit.extras
                .iter()
                .map(|(name, unit)| (size.extras.get(name).copied().unwrap_or(0), *unit)),
        )
        .filter(|(_, unit)| *unit > 0)
    }

    /// Quanta of one process, rounded **up**, by its largest dimension; at least one.
    pub fn quanta_of_work(&self, size: &Size) -> u64 {
        self.per_dimension(size)
            .map(|(size, unit)| size.div_ceil(unit))
            .max()
            .unwrap_or(1)
            .max(1)
    }

    /// Quanta of a node, rounded **down**, by its smallest dimension.
    pub fn quanta_of_node(&self, size: &Size) -> u64 {
        self.per_dimension(size)
            .map(|(size, unit)| size / unit)
            .min()
            .unwrap_or(0)
    }

    /// The amount that one process is granted. Dimensions of the quantum are granted in whole
    /// quanta, the others as requested.
    #[must_use]
    pub fn granted(&self, requested: &Size) -> Size {
        self.granted_at(self.quanta_of_work(requested), requested)
    }

    /// The amount that one process of `quanta` quanta is granted: whole quanta, and at least the
    /// request if the number of quanta is capped by the size of nodes.
    #[must_use]
    pub fn granted_at(&self, quanta: u64, requested: &Size) -> Size {
        let grant = |requested: u64, unit: u64| match unit {
            0 => requested,
            _ => quanta.saturating_mul(unit).max(requested),
        };
        let mut extras = requested.extras.clone();
        for (name, unit) in &self.0.extras {
            let amount = extras.entry(name.clone()).or_default();
            *amount = grant(*amount, *unit);
        }
        Size {
            memory_bytes: grant(requested.memory_bytes, self.0.memory_bytes),
            cpu_milli: grant(requested.cpu_milli, self.0.cpu_milli),
            gpu_milli: grant(requested.gpu_milli, self.0.gpu_milli),
            extras,
        }
    }

    /// The amount of a node that was taken as a whole: whole quanta in the dimensions of the
    /// quantum. Space taken with another quantum keeps its amount.
    #[must_use]
    pub fn whole(&self, quanta: u64, taken: &Size) -> Size {
        let quanta = self.quanta_of_node(taken).max(quanta);
        let clamp = |taken: u64, unit: u64| match unit {
            0 => taken,
            _ => quanta.saturating_mul(unit).min(taken),
        };
        let mut held = taken.clone();
        held.memory_bytes = clamp(taken.memory_bytes, self.0.memory_bytes);
        held.cpu_milli = clamp(taken.cpu_milli, self.0.cpu_milli);
        for (name, unit) in &self.0.extras {
            if let Some(amount) = held.extras.get_mut(name) {
                *amount = clamp(*amount, *unit);
            }
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_size_is_granted_without_overflow() {
        let granted = Quantum::default().granted(&Size::memory(u64::MAX));
        assert_eq!(granted.memory_bytes, u64::MAX);
    }

    /// Both use whole quanta.
    #[test]
    fn nodes_are_rounded_down_and_work_is_rounded_up() {
        let quantum = Quantum::default();
        assert_eq!(quantum.quanta_of_node(&Size::memory(8 * GIB - 1)), 7);
        assert_eq!(quantum.quanta_of_work(&Size::memory(GIB + 1)), 2);
        assert_eq!(quantum.quanta_of_work(&Size::default()), 1);
        assert_eq!(quantum.granted(&Size::memory(1)).memory_bytes, GIB);
    }

    /// The remainder belongs to no work.
    #[test]
    fn a_whole_node_is_held_in_quanta() {
        let quantum = Quantum(Size::memory(15 * GIB));
        let whole = |quanta, memory| quantum.whole(quanta, &Size::memory(memory)).memory_bytes;
        assert_eq!(whole(1, 29 * GIB), 15 * GIB);
        assert_eq!(whole(2, 30 * GIB), 30 * GIB);
        // The node was taken with another quantum: 1 GiB, then 30 GiB.
        assert_eq!(whole(29, 29 * GIB), 29 * GIB);
        assert_eq!(whole(1, 31 * GIB), 30 * GIB);
        let mut taken = Size::memory(29 * GIB);
        taken.cpu_milli = 7_000;
        assert_eq!(quantum.whole(1, &taken).cpu_milli, 7_000);
    }

    #[test]
    fn a_quantum_with_cpu_counts_the_dominant_dimension() {
        let quantum = Quantum(Size {
            memory_bytes: GIB,
            cpu_milli: 1000,
            ..Size::default()
        });
        let size = Size {
            memory_bytes: GIB,
            cpu_milli: 3500,
            ..Size::default()
        };
        assert_eq!(quantum.quanta_of_work(&size), 4);
        assert_eq!(quantum.quanta_of_node(&size), 1);
    }

    #[test]
    fn fit_compares_every_dimension() {
        let space = Size {
            memory_bytes: 10,
            cpu_milli: 10,
            ..Size::default()
        };
        let mut request = space.clone();
        assert!(request.fits(&space));
        request.extras.insert("licence".into(), 1);
        assert!(!request.fits(&space));
    }
}
