//! Many names at once. A name lies somewhere in memory by itself, and taking it up counts there who
//! has it, which lets nothing else go on until that memory has come.

/// Has the memory of all of these come at the same time, for whoever is about to take them up.
pub(crate) fn fetch<'a>(names: impl Iterator<Item = &'a str>) {
    let letters = names.filter_map(|name| name.as_bytes().first());
    std::hint::black_box(letters.fold(0, |all, letter| all ^ letter));
}

/// The same for anything else of which some number is read.
pub(crate) fn fetch_rows(numbers: impl Iterator<Item = usize>) {
    std::hint::black_box(numbers.fold(0, |all, number| all ^ number));
}
