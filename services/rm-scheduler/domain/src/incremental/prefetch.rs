//! Prefetch: reads one byte of each name, so that cache misses overlap.

/// Prefetches names.
pub(crate) fn fetch<'a>(names: impl Iterator<Item = &'a str>) {
    let letters = names.filter_map(|name| name.as_bytes().first());
    std::hint::black_box(letters.fold(0, |all, letter| all ^ letter));
}

/// Prefetches rows of which a number is read.
pub(crate) fn fetch_rows(numbers: impl Iterator<Item = usize>) {
    std::hint::black_box(numbers.fold(0, |all, number| all ^ number));
}
