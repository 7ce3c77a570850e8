//! Amounts in sentences, with the noun in singular or plural.

/// `1 node`, `3 nodes`.
pub fn with_count(count: u64, singular: &str, plural: &str) -> String {
    let noun = if count == 1 { singular } else { plural };
    format!("{count} {noun}")
}

pub fn quanta(count: u64) -> String {
    with_count(count, "quantum", "quanta")
}

pub fn processes(count: u64) -> String {
    with_count(count, "process", "processes")
}

pub fn nodes(count: u64) -> String {
    with_count(count, "node", "nodes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noun_agrees_with_its_count() {
        assert_eq!([0, 1, 2].map(quanta), ["0 quanta", "1 quantum", "2 quanta"]);
        assert_eq!(
            (processes(1), nodes(1)),
            ("1 process".into(), "1 node".into())
        );
    }
}
