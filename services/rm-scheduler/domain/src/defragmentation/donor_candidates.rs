//! Who could give (12.3): asked for the first work of a kind that is mended, and for the next ones
//! only of what has changed since.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::donors::{is_rich, was_hit_lately};
use crate::{
    input::snapshot::Policy,
    state::{Books, ClassBook},
};

/// By what it depends on who could give: the priority of a class, and its pool.
#[derive(Default)]
pub(super) struct Candidates {
    known: BTreeMap<Kind, Found>,
}

type Kind = (i64, usize);

#[derive(Default)]
struct Found {
    rich: Vec<usize>,
    poor: Vec<usize>,
    /// How much of this round's writing it knows.
    then: usize,
}

impl Candidates {
    /// the rich, and the poor that the request outranks. In no order.
    pub fn of(&mut self, books: &Books, request: usize) -> (&[usize], &[usize]) {
        let class = books.requests[request].class;
        let class = class.map(|class| &books.classes[class]);
        let Some(kind) = class.and_then(|book| Some((book.class.priority, book.pool?))) else {
            return (&[], &[]);
        };
        let found = self.known.entry(kind);
        let found = found.or_insert_with(|| Found::of(books, kind));
        found.follow(books, kind);
        (&found.rich, &found.poor)
    }
}

impl Found {
    fn of(books: &Books, kind: Kind) -> Self {
        let mut found = Self {
            then: books.requests.now(),
            ..Self::default()
        };
        let is_below = |book: &ClassBook| kind.0 < book.class.priority;
        // Peers give only what is beyond the threshold, so few of them matter.
        for donor in books.sets.hoards.donors(books) {
            if class_of(books, donor).is_some_and(|book| !is_below(book)) {
                found.enter(books, kind, donor);
            }
        }
        let below = books.classes.iter().filter(|book| is_below(book));
        for donor in below.flat_map(ClassBook::requests) {
            found.enter(books, kind, donor);
        }
        found
    }

    fn follow(&mut self, books: &Books, kind: Kind) {
        if self.then == books.requests.now() {
            return;
        }
        let changed: FxHashSet<usize> = books.requests.since(self.then).collect();
        self.then = books.requests.now();
        for donors in [&mut self.rich, &mut self.poor] {
            donors.retain(|donor| !changed.contains(donor));
        }
        for donor in changed {
            self.enter(books, kind, donor);
        }
    }

    fn enter(&mut self, books: &Books, (priority, home): Kind, donor: usize) {
        let (forest, book) = (books.forest, class_of(books, donor));
        let is_related = |pool: usize| forest.is_within(pool, home) || forest.is_within(home, pool);
        let gives = |book: &&ClassBook| {
            let fair = book.class.policy == Policy::FairShare;
            fair && book.class.priority >= priority && book.pool.is_some_and(is_related)
        };
        let Some(book) = book.filter(gives) else {
            return;
        };
        if is_rich(books, donor) {
            self.rich.push(donor);
        } else if priority < book.class.priority
            && books.requests[donor].has() > 0
            && !was_hit_lately(books, donor)
        {
            self.poor.push(donor);
        }
    }
}

fn class_of<'b>(books: &'b Books, donor: usize) -> Option<&'b ClassBook<'b>> {
    let class = books.requests[donor].class?;
    Some(&books.classes[class])
}
