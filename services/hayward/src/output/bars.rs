//! Draws bars of block characters, for shares.

/// Draws `held` and `due` on a scale of `total`, with `width` characters. The amount held within
/// `due` is full. The amount held beyond `due` is shaded. The amount due but not held is dotted.
pub fn draw_share(held: u64, due: u64, total: u64, width: u64) -> String {
    let width_of = |amount: u64| {
        let scaled = u128::from(amount) * u128::from(width) / u128::from(total.max(1));
        // A small amount gets at least one character.
        let scaled = u64::try_from(scaled).unwrap_or(width).min(width);
        if amount > 0 { scaled.max(1) } else { 0 }
    };
    let (held, due) = (width_of(held), width_of(due));
    let mut bar = String::new();
    for column in 0..held.max(due) {
        bar.push(match (column < held, column < due) {
            (true, true) => '█',
            (true, false) => '▒',
            _ => '░',
        });
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::draw_share;

    #[test]
    fn a_bar_distinguishes_overuse_from_unused_share() {
        assert_eq!(draw_share(4, 4, 8, 8), "████");
        assert_eq!(draw_share(6, 4, 8, 8), "████▒▒");
        assert_eq!(draw_share(2, 4, 8, 8), "██░░");
        assert_eq!(draw_share(0, 0, 8, 8), "");
        assert_eq!(draw_share(1, 0, 10_000, 8), "▒");
        assert_eq!(
            draw_share(u64::MAX, u64::MAX, 1, 4),
            "████",
            "the bar never exceeds its width"
        );
        assert_eq!(
            draw_share(3, 3, 0, 4),
            "████",
            "a total of zero is no error"
        );
    }
}
