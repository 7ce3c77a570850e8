//! Clamps the claimed resources of a node to the limit of its enrolment (S15).

/// Returns the smaller value. A limit of zero means unlimited.
pub fn clamp_to_limit(claimed: u64, limit: u64) -> u64 {
    if limit == 0 {
        claimed
    } else {
        claimed.min(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::clamp_to_limit;

    #[test]
    fn a_claim_is_clamped_to_its_limit() {
        let clamped = [(8, 0), (8, 4), (8, 8), (8, 16), (0, 4)]
            .map(|(claimed, limit)| clamp_to_limit(claimed, limit));
        assert_eq!(clamped, [8, 4, 8, 8, 0]);
    }
}
