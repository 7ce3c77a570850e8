//! Room that is never taken back, by user: what may be held, and what is held and counted.

use hayward_vocabulary::UserName;

use super::Books;

impl<'a> Books<'a> {
    /// Bytes of one quantum in the tree of this request's class.
    pub fn quantum_bytes(&self, request: usize) -> u64 {
        self.register.quantum(self.home(request)).0.memory_bytes
    }

    /// Bytes the user of this request may hold for it, and those held and counted already.
    pub fn allotment(&self, request: usize) -> Option<(u64, u64)> {
        let user = &self.demand(request).user;
        let class = self.requests[request].class.map(|c| self.classes[c].name);
        let own = self.snapshot.users.get(user);
        let of_class = class.and_then(|class| {
            let limit = own?.max_allotment_by_class.get(class)?;
            let used = self.fixed_used_in.get(&(user, class)).copied();
            Some((*limit, used.unwrap_or(0)))
        });
        let limit = own
            .and_then(|user| user.max_allotment_bytes)
            .or(self.snapshot.tunables.global_allotment_bytes);
        of_class.or_else(|| {
            let used = self.fixed_used.get(user).copied().unwrap_or(0);
            limit.map(|limit| (limit, used))
        })
    }

    /// Processes of this many quanta the user may still take of non-preemptable room.
    pub fn allotment_left(&self, request: usize, order: u64) -> u64 {
        let each = order.saturating_mul(self.quantum_bytes(request)).max(1);
        self.allotment(request)
            .map_or(u64::MAX, |(limit, used)| limit.saturating_sub(used) / each)
    }

    /// Counts processes of this many quanta against the allotment [C-5].
    pub fn use_allotment(&mut self, request: usize, order: u64, count: u64) {
        let bytes = order
            .saturating_mul(count)
            .saturating_mul(self.quantum_bytes(request));
        let class = self.requests[request].class.map(|c| self.classes[c].name);
        let user = &self.demand(request).user;
        self.note_fixed(user, class.unwrap_or_default(), bytes);
    }

    pub(super) fn note_fixed(&mut self, user: &'a UserName, class: &'a str, bytes: u64) {
        let all = self.fixed_used.entry(user).or_default();
        *all = all.saturating_add(bytes);
        let used = self.fixed_used_in.entry((user, class)).or_default();
        *used = used.saturating_add(bytes);
    }
}
