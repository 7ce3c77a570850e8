//! One task per line.

use anyhow::bail;

/// An argument vector per line that is not blank. A line is one argument, whatever is in it.
pub fn vectors(text: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let vectors: Vec<Vec<String>> = lines.map(|line| vec![line.to_owned()]).collect();
    if vectors.is_empty() {
        bail!("there is no line in it, so there would be no task");
    }
    Ok(vectors)
}

#[cfg(test)]
mod tests {
    use super::vectors;

    #[test]
    fn a_line_is_one_argument() {
        let read = vectors("a b\n\n  \nc\r\n{task} \"d\"").unwrap();
        assert_eq!(read, [vec!["a b"], vec!["c"], vec!["{task} \"d\""]]);
        assert!(vectors(" \n\n").is_err());
    }
}
