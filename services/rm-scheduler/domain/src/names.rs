//! Many names at once. A name lies somewhere in memory by itself: comparing two goes there twice,
//! and sorting a thousand does so ten thousand times, so each is read once. And taking a name up
//! counts there who has it, which lets nothing else go on until that memory has come.

use hayward_vocabulary::WorkId;

/// Letters that are read beforehand: the time in most ids, and so hardly two are alike in them.
const LETTERS: usize = 16;

/// Numbers of work, by name.
pub(crate) fn by_name<'a>(
    work: &[usize],
    name: impl Fn(usize) -> &'a WorkId,
) -> impl Iterator<Item = usize> {
    let starts = work.iter().map(|at| start(name(*at).as_str()));
    let starts: Vec<u128> = starts.collect();
    let first = starts.first().copied().unwrap_or_default();
    let differs = starts.iter().fold(0, |all, start| all | (start ^ first));
    // What all begin with says nothing of their order; of the rest, half is mostly enough.
    let same = differs.leading_zeros();
    let letters = |start: u128| (start.checked_shl(same).unwrap_or_default() >> 64) as u64;
    let rows = starts.into_iter().map(letters).zip(work.iter().copied());
    let mut rows: Vec<(u64, usize)> = rows.collect();
    rows.sort_unstable_by_key(|(letters, _)| *letters);
    for alike in rows.chunk_by_mut(|(one, _), (other, _)| one == other) {
        if alike.len() > 1 {
            alike.sort_unstable_by_key(|(_, at)| name(*at));
        }
    }
    rows.into_iter().map(|(_, at)| at)
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
            let all: Vec<usize> = (0..ids.len()).collect();
            let found: Vec<&WorkId> = by_name(&all, |at| &ids[at]).map(|at| &ids[at]).collect();
            let mut sorted: Vec<&WorkId> = ids.iter().collect();
            sorted.sort_unstable();
            prop_assert_eq!(found, sorted);
        }
    }
}
