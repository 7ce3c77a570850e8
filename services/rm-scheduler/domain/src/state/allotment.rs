//! Allotments: the maximum non-preemptable space of each user, and the part of it that is used.
//! Space that is held and space of entitlements set in this round count as used.

use hayward_vocabulary::UserName;

use super::RoundState;
use crate::ids::WorkIx;

impl<'a> RoundState<'a> {
    /// Returns the bytes of one quantum in the tree of this work.
    pub fn quantum_bytes(&self, work: WorkIx) -> u64 {
        self.index.quantum(self.home(work)).0.memory_bytes
    }

    /// Returns the limit and the used bytes of the allotment that applies to this work. Returns
    /// `None` if there is no limit.
    pub fn allotment(&self, work: WorkIx) -> Option<(u64, u64)> {
        let user = &self.work_record(work).user_name;
        let class = self.work[work].class.map(|class| self.classes[class].name);
        let limits = self.snapshot.users.get(user);
        let class_allotment = class.and_then(|class| {
            let limit = limits?.max_allotment_by_class.get(class)?;
            let used = self
                .fixed_bytes_by_user_and_class
                .get(&(user, class))
                .copied();
            Some((*limit, used.unwrap_or(0)))
        });
        let limit = limits
            .and_then(|user| user.max_allotment_bytes)
            .or(self.snapshot.tunables.global_allotment_bytes);
        class_allotment.or_else(|| {
            let used = self.fixed_bytes_by_user.get(user).copied().unwrap_or(0);
            limit.map(|limit| (limit, used))
        })
    }

    /// Returns how many processes of this many quanta still fit into the allotment.
    pub fn allotment_left(&self, work: WorkIx, quanta: u64) -> u64 {
        let process_bytes = quanta.saturating_mul(self.quantum_bytes(work)).max(1);
        self.allotment(work).map_or(u64::MAX, |(limit, used)| {
            limit.saturating_sub(used) / process_bytes
        })
    }

    /// Charges processes of this many quanta to the allotment (C-5).
    pub fn use_allotment(&mut self, work: WorkIx, quanta: u64, count: u64) {
        let bytes = quanta
            .saturating_mul(count)
            .saturating_mul(self.quantum_bytes(work));
        let class = self.work[work].class.map(|class| self.classes[class].name);
        let user = &self.work_record(work).user_name;
        self.add_fixed_bytes(user, class.unwrap_or_default(), bytes);
    }

    /// Adds bytes of non-preemptable space to the sums of the user.
    pub(super) fn add_fixed_bytes(&mut self, user: &'a UserName, class: &'a str, bytes: u64) {
        let total = self.fixed_bytes_by_user.entry(user).or_default();
        *total = total.saturating_add(bytes);
        let used = self
            .fixed_bytes_by_user_and_class
            .entry((user, class))
            .or_default();
        *used = used.saturating_add(bytes);
    }
}
