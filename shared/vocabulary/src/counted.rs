//! Amounts in sentences, with the noun in singular or plural.

/// `1 node`, `3 nodes`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    let noun = if count == 1 { one } else { many };
    format!("{count} {noun}")
}

pub fn quanta(count: u64) -> String {
    counted(count, "quantum", "quanta")
}

pub fn processes(count: u64) -> String {
    counted(count, "process", "processes")
}

pub fn nodes(count: u64) -> String {
    counted(count, "node", "nodes")
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
