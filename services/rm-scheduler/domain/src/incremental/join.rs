//! Two closures in parallel, if there is enough work for a second thread.

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

/// Changes the rows with these numbers in place, on two threads; returns what `change` returns,
/// unordered.
pub(crate) fn change_in_parallel<T: Send, R: Send>(
    rows: &mut [T],
    numbers: &[usize],
    change: impl Fn(usize, &mut T) -> Option<R> + Sync,
) -> Vec<R> {
    let middle = rows.len() / 2;
    let (low, high) = rows.split_at_mut(middle);
    let here = || {
        let numbers = numbers.iter().filter(|at| **at < middle);
        numbers
            .filter_map(|at| change(*at, &mut low[*at]))
            .collect()
    };
    let in_parallel = || {
        let numbers = numbers.iter().filter(|at| **at >= middle);
        let changed = numbers.filter_map(|at| change(*at, &mut high[*at - middle]));
        changed.collect::<Vec<R>>()
    };
    let (mut all, rest): (Vec<R>, _) = join(numbers.len(), here, in_parallel);
    all.extend(rest);
    all
}
