//! Node files: one name per line, `#` comments, `import FILE`. A file with a name that ends in
//! `.regex`, or that is named by `regexfile`, contains one expression instead.

use std::collections::BTreeMap;
use std::path::Path;

use super::stanza::Stanza;
use super::{Import, Kind};
use crate::fault::pointer;

/// Maximum depth of imports.
const MAX_DEPTH: usize = 20;

/// Adds the nodes of its file to every pool.
pub(super) fn take(import: &mut Import<'_>, stanzas: &[Stanza]) {
    let pools = || {
        stanzas
            .iter()
            .filter(|stanza| stanza.kind == Kind::Nodepool)
    };
    let mut owners: BTreeMap<&str, &Stanza> = BTreeMap::new();
    for stanza in pools() {
        let files = ["nodefile", "regexfile"].map(|key| stanza.pairs.get(key));
        for (line, values) in files.into_iter().flatten() {
            let [file] = values.as_slice() else {
                let detail = format!("{}: name one file of nodes", stanza.name);
                import.fault(&stanza.file, *line, detail);
                continue;
            };
            if let Some(first) = owners.insert(file, stanza) {
                let (name, first) = (&stanza.name, &first.name);
                let detail = format!("{name}: pool {first} has the node file {file} already");
                import.fault(&stanza.file, *line, detail);
            }
        }
    }
    for (file, stanza) in &owners {
        let named = stanza.pairs.get("regexfile");
        let is_expression = named.is_some_and(|(_, values)| values.iter().any(|it| it == file));
        let key = if is_expression {
            "regexfile"
        } else {
            "nodefile"
        };
        let line = stanza.pairs.get(key).map_or(stanza.line, |(line, _)| *line);
        let Some(text) = (import.node_file)(file) else {
            let detail = format!("{}: there is no node file {file}", stanza.name);
            import.fault(&stanza.file, line, detail);
            continue;
        };
        if is_expression
            || Path::new(file)
                .extension()
                .is_some_and(|end| end == "regex")
        {
            expression(import, stanza, file, &text);
        } else {
            let mut reading = Reading {
                import,
                pool: &stanza.name,
                owners: &owners,
                inside: Vec::new(),
            };
            reading.file(file, &text);
        }
    }
}

/// Reads an expression file.
fn expression(import: &mut Import<'_>, stanza: &Stanza, file: &str, text: &str) {
    let found: Vec<(usize, &str)> = lines(text).collect();
    let [(line, pattern)] = found.as_slice() else {
        let line = found.get(1).map_or(0, |(line, _)| *line);
        let detail = "holds one expression on one line, no more and no less";
        import.fault(file, line, detail);
        return;
    };
    import.spot(pointer(&["pools", &stanza.name, "pattern"]), file, *line);
    if let Some(pool) = import.policy.pools.get_mut(&stanza.name) {
        pool.pattern = Some((*pattern).to_owned());
    }
}

/// Returns the lines of a file, without comments and empty lines.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

struct Reading<'a, 'b> {
    import: &'a mut Import<'b>,
    pool: &'a str,
    owners: &'a BTreeMap<&'a str, &'a Stanza>,
    /// Names of the files being read, the outermost first.
    inside: Vec<String>,
}

impl Reading<'_, '_> {
    fn file(&mut self, file: &str, text: &str) {
        self.inside.push(file.to_owned());
        for (line, content) in lines(text) {
            let words = content.split('#').next().unwrap_or("");
            let words: Vec<&str> = words
                .split([' ', '\t', ','])
                .filter(|it| !it.is_empty())
                .collect();
            match words.as_slice() {
                ["import", other] => self.other(file, line, other),
                [node] => self.node(file, line, node),
                _ => {
                    let detail = format!("{content:?} is neither one name nor `import FILE`");
                    self.import.fault(file, line, detail);
                }
            }
        }
        self.inside.pop();
    }

    fn other(&mut self, file: &str, line: usize, other: &str) {
        // The nodes in the file of another pool belong to that pool.
        if self.owners.contains_key(other) {
            return;
        }
        if self.inside.iter().any(|open| open == other) || self.inside.len() >= MAX_DEPTH {
            self.import.fault(
                file,
                line,
                format!("import {other}: files import one another"),
            );
            return;
        }
        if let Some(text) = (self.import.node_file)(other) {
            self.file(other, &text);
        } else {
            let detail = format!("import {other}: there is no such file");
            self.import.fault(file, line, detail);
        }
    }

    fn node(&mut self, file: &str, line: usize, node: &str) {
        let Some(pool) = self.import.policy.pools.get_mut(self.pool) else {
            return;
        };
        let place = pool.nodes.len().to_string();
        pool.nodes.push(node.to_owned());
        let at = pointer(&["pools", self.pool, "nodes", &place]);
        self.import.spot(at, file, line);
    }
}
