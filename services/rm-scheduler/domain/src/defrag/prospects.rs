//! How much will be free on nodes once everything that leaves has left: nodes that come to the same
//! are counted together. Kept from round to round, as [`FreeNodes`](crate::what_of::FreeNodes) are.

use rustc_hash::FxHashMap;

use crate::books::Books;

/// Its pool, the quanta that will be free, and whether that is all of it.
type Prospect = (usize, u64, bool);

#[derive(Default)]
pub(crate) struct Prospects {
    alike: FxHashMap<Prospect, u64>,
    /// By node.
    filed: Vec<Option<Prospect>>,
}

impl Prospects {
    pub fn renew(&mut self, books: &Books) {
        if books.register.anew {
            self.alike.clear();
            self.filed.clear();
            self.filed.resize(books.machines.len(), None);
            (0..books.machines.len()).for_each(|at| self.file(books, at));
        } else {
            books.machines.stirred().for_each(|at| self.file(books, at));
        }
    }

    /// The same after some of this round is decided.
    pub fn follow(&mut self, books: &Books) {
        books.machines.written().for_each(|at| self.file(books, at));
    }

    /// In no order.
    pub fn alike(&self) -> impl Iterator<Item = (Prospect, u64)> {
        let alike = self.alike.iter();
        alike.map(|(prospect, nodes)| (*prospect, *nodes))
    }

    fn file(&mut self, books: &Books, at: usize) {
        let now = prospect(books, at);
        let before = std::mem::replace(&mut self.filed[at], now);
        if before == now {
            return;
        }
        if let Some(before) = before
            && let Some(nodes) = self.alike.get_mut(&before)
        {
            *nodes -= 1;
            if *nodes == 0 {
                self.alike.remove(&before);
            }
        }
        if let Some(now) = now {
            *self.alike.entry(now).or_default() += 1;
        }
    }

    /// What is kept is what counting all nodes anew gives.
    #[cfg(test)]
    pub fn assert_recounted(&self, books: &Books) {
        let mut alike = FxHashMap::<_, u64>::default();
        for prospect in (0..books.machines.len()).filter_map(|at| prospect(books, at)) {
            *alike.entry(prospect).or_default() += 1;
        }
        assert_eq!(self.alike, alike, "nodes that come to the same");
    }
}

fn prospect(books: &Books, at: usize) -> Option<Prospect> {
    let machine = &books.machines[at];
    let pool = machine.pool.filter(|_| machine.is_schedulable())?;
    let hole = books.coming_order(at);
    Some((pool, hole, hole == machine.order))
}
