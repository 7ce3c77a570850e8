//! Two closures in parallel, if there is enough work for a second thread.

use crate::ids::{Ix, TypedVec};
use std::{iter::Chain, vec::IntoIter};

/// Items below which a second thread costs more than it saves.
const WORTH_A_THREAD: usize = 8_000;

/// Returns both results. The second closure runs on another thread if `work` is large.
pub(crate) fn join<A, B: Send>(
    work: usize,
    here: impl FnOnce() -> A,
    in_parallel: impl FnOnce() -> B + Send,
) -> (A, B) {
    if work < WORTH_A_THREAD {
        return (here(), in_parallel());
    }
    std::thread::scope(|threads| {
        let in_parallel = threads.spawn(in_parallel);
        let here = here();
        match in_parallel.join() {
            Ok(in_parallel) => (here, in_parallel),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Maps items in order, half of them on another thread. `weight` is the cost of one item.
pub(crate) fn map_in_parallel<T: Copy + Sync, R: Send>(
    (items, weight): (&[T], usize),
    find: impl Fn(T) -> R + Sync,
) -> Chain<IntoIter<R>, IntoIter<R>> {
    let find_all = |items: &[T]| items.iter().map(|item| find(*item)).collect::<Vec<R>>();
    let (here, in_parallel) = items.split_at(items.len() / 2);
    let (here, in_parallel) = join(
        items.len() * weight,
        || find_all(here),
        || find_all(in_parallel),
    );
    here.into_iter().chain(in_parallel)
}

/// Changes these rows in place, on two threads; returns what `change` returns,
/// unordered.
pub(crate) fn change_in_parallel<I: Ix + Sync, T: Send, R: Send>(
    rows: &mut TypedVec<I, T>,
    indices: &[I],
    change: impl Fn(I, &mut T) -> Option<R> + Sync,
) -> Vec<R> {
    let middle = rows.len() / 2;
    let (low, high) = rows.as_mut_slice().split_at_mut(middle);
    let here = || {
        let indices = indices.iter().filter(|row| row.index() < middle);
        indices
            .filter_map(|row| change(*row, &mut low[row.index()]))
            .collect()
    };
    let in_parallel = || {
        let indices = indices.iter().filter(|row| row.index() >= middle);
        let changed = indices.filter_map(|row| change(*row, &mut high[row.index() - middle]));
        changed.collect::<Vec<R>>()
    };
    let (mut all, rest): (Vec<R>, _) = join(indices.len(), here, in_parallel);
    all.extend(rest);
    all
}
