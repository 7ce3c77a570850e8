//! A second thread where there is so much to do that it pays.

use std::{iter::Chain, vec::IntoIter};

/// Below so many small things to do a second thread saves nothing: waking one up takes as long as
/// some hundreds of them, and what one has at hand in its memory the other has to wait for.
const WORTH_A_THREAD: usize = 8_000;

/// Both answers; the second is worked out beside the first where there is much work.
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

/// What is found for each of these, one by one and in their order; half of it beside the rest. Each
/// is as much as so many small things.
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

/// Changes the rows of these numbers in their places, those of one half of the rows beside those of
/// the other; returns what `change` answers, in no order.
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
