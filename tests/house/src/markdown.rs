//! The parts of a Markdown page that the checks read: code spans, links and headings.

/// Returns a page without its fenced blocks.
#[must_use]
pub fn without_code_blocks(text: &str) -> String {
    let mut fenced = false;
    let mut output = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            output.push_str(line);
        }
        output.push('\n');
    }
    output
}

/// Returns the texts in backquotes, with their line numbers. A span may cross a line break, but not
/// the end of a paragraph or of a table row.
#[must_use]
pub fn code_spans(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut paragraph = String::new();
    let mut first_line = 1;
    let text = without_code_blocks(text);
    for (index, line) in text.lines().chain(std::iter::once("")).enumerate() {
        if line.trim().is_empty() || line.starts_with('|') {
            collect_spans(&paragraph, first_line, &mut found);
            collect_spans(line, index + 1, &mut found);
            paragraph.clear();
            first_line = index + 2;
        } else {
            paragraph.push_str(line);
            paragraph.push('\n');
        }
    }
    found
}

fn collect_spans(paragraph: &str, first_line: usize, found: &mut Vec<(usize, String)>) {
    let mut line = first_line;
    for (index, part) in paragraph.split('`').enumerate() {
        if index % 2 == 1 {
            found.push((line, part.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        line += part.matches('\n').count();
    }
}

/// Returns the targets of links, with their line numbers.
#[must_use]
pub fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in without_code_blocks(text).lines().enumerate() {
        let targets = line
            .split("](")
            .skip(1)
            .filter_map(|part| part.split(')').next());
        found.extend(targets.map(|target| (index + 1, target.to_owned())));
    }
    found
}

/// Returns the anchors of a page, as GitHub makes them from its headings.
#[must_use]
pub fn anchors(text: &str) -> Vec<String> {
    let text = without_code_blocks(text);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .collect()
}

fn anchor(heading: &str) -> String {
    let is_allowed = |c: &char| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_';
    let allowed: String = heading.to_lowercase().chars().filter(is_allowed).collect();
    allowed.replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A *good* title, isn't it\n\nSee `one\ntwo` and [b](b.md#c).\n\n\
        ```console\n$ echo `no` [x](y)\n```\n| `three` | ` |\n\nIn `four`.\n";

    #[test]
    fn spans_links_and_anchors_are_found_outside_of_blocks() {
        let spans = code_spans(PAGE);
        let expected = [(3, "one two"), (9, "three"), (9, "|"), (11, "four")];
        let expected: Vec<_> = expected.map(|(line, text)| (line, text.to_owned())).into();
        assert_eq!(spans, expected);
        assert_eq!(links(PAGE), [(4, "b.md#c".to_owned())]);
        assert_eq!(anchors(PAGE), ["a-good-title-isnt-it"]);
    }
}
