//! Placeholders in commands, variables and paths of a job: `{task}`, `{task:05}`, `{node}` and
//! others (TC-65).
//!
//! A value is inserted as text, and never split. Other text between braces stays unchanged, and
//! `{{task}}` gives `{task}`.

/// The names that are replaced.
pub const NAMES: [&str; 8] = [
    "job",
    "name",
    "task",
    "attempt",
    "run",
    "user",
    "node",
    "allocation",
];
/// Maximum width of a number that is padded with zeros.
const MAX_WIDTH: usize = 20;

/// Values of one run of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Values<'a> {
    pub job: &'a str,
    pub name: &'a str,
    pub task: u64,
    pub attempt: u32,
    /// Name of this start of a program, which no other start in the fleet has.
    pub run: &'a str,
    pub user: &'a str,
    pub node: &'a str,
    pub allocation: &'a str,
}

impl Values<'_> {
    fn get(&self, name: &str) -> Option<String> {
        Some(match name {
            "job" => self.job.to_owned(),
            "name" => self.name.to_owned(),
            "task" => self.task.to_string(),
            "attempt" => self.attempt.to_string(),
            "run" => self.run.to_owned(),
            "user" => self.user.to_owned(),
            "node" => self.node.to_owned(),
            "allocation" => self.allocation.to_owned(),
            _ => return None,
        })
    }

    /// Replaces the placeholders of one word.
    pub fn fill(&self, text: &str) -> String {
        replace(text, |name| self.get(name))
    }

    /// Replaces the placeholders of a path. A name that a user chose stays one part of the path
    /// (TC-66).
    pub fn fill_path(&self, text: &str) -> String {
        replace(text, |name| {
            let value = self.get(name)?;
            Some(match name {
                "name" | "user" => to_path_part(&value),
                _ => value,
            })
        })
    }
}

/// Returns true if the text contains the placeholder of this name.
pub fn contains(text: &str, name: &str) -> bool {
    let mut found = false;
    replace(text, |other| {
        found |= other == name;
        None
    });
    found
}

/// Returns true if the text contains a placeholder, or one with doubled braces.
pub fn contains_any(text: &str) -> bool {
    NAMES.iter().any(|name| contains(text, name)) || replace(text, |_| None) != text
}

/// Returns names between braces that are probably a misspelt placeholder.
pub fn find_misspelt(text: &str) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        rest = &rest[start + 1..];
        let Some(end) = rest.find(['{', '}']) else {
            break;
        };
        let name = &rest[..end];
        let is_close = NAMES
            .iter()
            .any(|known| *known != name && edit_distance(known, name) <= 1);
        if rest.as_bytes()[end] == b'}' && !NAMES.contains(&name) && is_close {
            unknown.push(name.to_owned());
        }
    }
    unknown
}

fn replace(text: &str, mut value_of: impl FnMut(&str) -> Option<String>) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        filled.push_str(&rest[..start]);
        rest = &rest[start..];
        if let Some((name, after)) = split_escaped(rest) {
            filled.push_str(name);
            rest = after;
            continue;
        }
        let placeholder = split_placeholder(rest);
        let value = placeholder.and_then(|(name, width, _)| {
            let value = value_of(name)?;
            Some(format!("{value:0>width$}"))
        });
        if let (Some(value), Some((_, _, after))) = (value, placeholder) {
            filled.push_str(&value);
            rest = after;
        } else {
            filled.push('{');
            rest = &rest[1..];
        }
    }
    filled.push_str(rest);
    filled
}

/// Splits `{{name}}` into `{name}` and the text after it.
fn split_escaped(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('{')?;
    let (_, _, after) = split_placeholder(inner)?;
    let after = after.strip_prefix('}')?;
    Some((&inner[..inner.len() - after.len() - 1], after))
}

/// Splits `{name}` or `{name:05}` into name, width and the text after it.
fn split_placeholder(text: &str) -> Option<(&str, usize, &str)> {
    let (inner, after) = text.strip_prefix('{')?.split_once('}')?;
    let (name, width) = match inner.split_once(':') {
        None => (inner, 0),
        Some((name @ ("task" | "attempt"), width)) if width.starts_with('0') => {
            let width = width.parse().ok()?;
            ((1..=MAX_WIDTH).contains(&width)).then_some((name, width))?
        }
        Some(_) => return None,
    };
    NAMES.contains(&name).then_some((name, width, after))
}

fn to_path_part(name: &str) -> String {
    let replaced: String = name
        .chars()
        .map(|it| {
            if it == '/' || it.is_control() {
                '_'
            } else {
                it
            }
        })
        .collect();
    match replaced.as_str() {
        "." | ".." => "_".to_owned(),
        _ => replaced,
    }
}

/// Returns 0 for equal words, 1 for words with one letter more, less or different, else 2.
fn edit_distance(first: &str, second: &str) -> usize {
    let (first, second) = (first.as_bytes(), second.as_bytes());
    let common = first
        .iter()
        .zip(second)
        .take_while(|(one, other)| one == other)
        .count();
    let (first, second) = (&first[common..], &second[common..]);
    match (first, second) {
        ([], []) => 0,
        ([_, one @ ..], [_, other @ ..]) if one == other => 1,
        ([_, one @ ..], other) if one == other => 1,
        (one, [_, other @ ..]) if one == other => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: Values<'static> = Values {
        job: "job_1",
        name: "../a b",
        task: 7,
        attempt: 2,
        run: "alc_1.3",
        user: "ada",
        node: "node-1",
        allocation: "alc_1",
    };

    #[test]
    fn known_placeholders_are_replaced_and_other_braces_stay() {
        let cases = [
            ("{task}", "7"),
            ("out-{task:05}.txt", "out-00007.txt"),
            ("{job}/{user}@{node}:{attempt}", "job_1/ada@node-1:2"),
            ("{{task}}", "{task}"),
            ("{{task:05}}x", "{task:05}x"),
            ("{tasks} {} {{}} {", "{tasks} {} {{}} {"),
            ("{a{task}b}", "{a7b}"),
            (
                "{task:00} {task:5} {task:021}",
                "{task:00} {task:5} {task:021}",
            ),
            ("{\"k\": {task}}", "{\"k\": 7}"),
        ];
        for (text, filled) in cases {
            assert_eq!(VALUES.fill(text), filled, "{text}");
        }
    }

    #[test]
    fn a_name_in_a_path_stays_one_part_of_it() {
        assert_eq!(VALUES.fill_path("/data/{name}/{task}"), "/data/.._a b/7");
        let values = Values {
            name: "..",
            ..VALUES
        };
        assert_eq!(values.fill_path("{name}"), "_");
        assert_eq!(values.fill("{name}"), "..");
    }

    #[test]
    fn a_misspelt_placeholder_is_found() {
        assert_eq!(
            find_misspelt("{tsk} {task} {tasks} {x} ${HOME}"),
            ["tsk", "tasks"]
        );
        assert!(contains("a{task:03}", "task") && !contains("{{task}}", "task"));
        assert!(contains_any("{node}") && contains_any("{{task}}") && !contains_any("{x} {}"));
    }
}
