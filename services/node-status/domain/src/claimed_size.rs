//! S15: what a node claims to have is held to what it was enrolled for.

/// The smaller of the two; nothing was said where the limit is zero.
pub fn held_to(claimed: u64, limit: u64) -> u64 {
    if limit == 0 {
        claimed
    } else {
        claimed.min(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::held_to;

    #[test]
    fn a_claim_is_held_to_its_limit() {
        let held = [(8, 0), (8, 4), (8, 8), (8, 16), (0, 4)].map(|(is, most)| held_to(is, most));
        assert_eq!(held, [8, 4, 8, 8, 0]);
    }
}
