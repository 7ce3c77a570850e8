//! Many names at once. A name lies somewhere in memory by itself: comparing two goes there twice,
//! and sorting a thousand does so ten thousand times, so each is read once. And taking a name up
//! counts there who has it, which lets nothing else go on until that memory has come.

use hayward_vocabulary::WorkId;

/// Letters that are read beforehand: the time in most ids, and so hardly two are alike in them.
const LETTERS: usize = 16;

/// Numbers of work with their names, by name.
pub(crate) fn by_name<'a>(work: impl Iterator<Item = (&'a WorkId, usize)>) -> Vec<Named<'a>> {
    let named = |(id, at): (&'a WorkId, usize)| Named {
        start: start(id.as_str()),
        id,
        at,
    };
    let mut all: Vec<Named> = work.map(named).collect();
    // Most lists are in order but for a few.
    all.sort();
    all
}

/// Has the memory of all of these come at the same time, for whoever is about to take them up.
pub(crate) fn fetch<'a>(names: impl Iterator<Item = &'a str>) {
    let letters = names.filter_map(|name| name.as_bytes().first());
    std::hint::black_box(letters.fold(0, |all, letter| all ^ letter));
}

/// The same for anything else of which some number is read.
pub(crate) fn fetch_rows(numbers: impl Iterator<Item = usize>) {
    std::hint::black_box(numbers.fold(0, |all, number| all ^ number));
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named<'a> {
    start: u128,
    pub id: &'a WorkId,
    pub at: usize,
}

/// The first letters as one number: where these differ names are ordered as they are.
fn start(name: &str) -> u128 {
    let mut letters = [0; LETTERS];
    let len = name.len().min(LETTERS);
    letters[..len].copy_from_slice(&name.as_bytes()[..len]);
    u128::from_be_bytes(letters)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_in_the_order_of_their_letters(
            names in prop::collection::vec("[a-c][a-c0.-]{0,3}(job_0123456789)?[ab]{0,4}", 0..40),
        ) {
            let ids: Vec<WorkId> = names.iter().map(|name| name.parse().unwrap()).collect();
            let named = by_name(ids.iter().zip(0..));
            let mut sorted: Vec<(&WorkId, usize)> = ids.iter().zip(0..).collect();
            sorted.sort_unstable();
            let found: Vec<(&WorkId, usize)> = named.iter().map(|it| (it.id, it.at)).collect();
            prop_assert_eq!(found, sorted);
        }
    }
}
