//! Draws bars of block characters, for shares.

/// Draws `held` and `due` on a scale of `whole`, with `width` characters. The amount held within
/// `due` is full. The amount held beyond `due` is shaded. The amount due but not held is dotted.
pub fn share(held: u64, due: u64, whole: u64, width: u64) -> String {
    let places = |amount: u64| {
        let scaled = u128::from(amount) * u128::from(width) / u128::from(whole.max(1));
        // A small amount gets at least one character.
        let scaled = u64::try_from(scaled).unwrap_or(width).min(width);
        if amount > 0 { scaled.max(1) } else { 0 }
    };
    let (held, due) = (places(held), places(due));
    let mut bar = String::new();
    for place in 0..held.max(due) {
        bar.push(match (place < held, place < due) {
            (true, true) => '█',
            (true, false) => '▒',
            _ => '░',
        });
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn a_bar_distinguishes_over_from_under() {
        assert_eq!(share(4, 4, 8, 8), "████");
        assert_eq!(share(6, 4, 8, 8), "████▒▒");
        assert_eq!(share(2, 4, 8, 8), "██░░");
        assert_eq!(share(0, 0, 8, 8), "");
        assert_eq!(share(1, 0, 10_000, 8), "▒");
        assert_eq!(
            share(u64::MAX, u64::MAX, 1, 4),
            "████",
            "never wider than it may be"
        );
        assert_eq!(share(3, 3, 0, 4), "████", "an empty fleet divides nothing");
    }
}
