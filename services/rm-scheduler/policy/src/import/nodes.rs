//! Imports node files. A line of a node file is a node name, a `#` comment, or `import FILE`. A
//! pattern file has one regular expression for node names instead. Its name ends in `.regex`, or a
//! pool names it by the key `regexfile`.

use std::collections::BTreeMap;
use std::path::Path;

use super::stanza::Stanza;
use super::{ImportState, StanzaKind};
use crate::fault::pointer;

/// Maximum depth of imports.
const MAX_DEPTH: usize = 20;

/// Adds to each pool the nodes or the pattern of the file that its stanza names.
pub(super) fn import_node_files(import: &mut ImportState<'_>, stanzas: &[Stanza]) {
    let pools = || {
        stanzas
            .iter()
            .filter(|stanza| stanza.kind == StanzaKind::Nodepool)
    };
    // The pool that names each node file.
    let mut owners: BTreeMap<&str, &Stanza> = BTreeMap::new();
    for stanza in pools() {
        let files = ["nodefile", "regexfile"].map(|key| stanza.pairs.get(key));
        for (line, values) in files.into_iter().flatten() {
            let [file] = values.as_slice() else {
                let detail = format!("{}: name one file of nodes", stanza.name);
                import.add_fault(&stanza.file, *line, detail);
                continue;
            };
            if let Some(first) = owners.insert(file, stanza) {
                let (name, first) = (&stanza.name, &first.name);
                let detail = format!("{name}: pool {first} has the node file {file} already");
                import.add_fault(&stanza.file, *line, detail);
            }
        }
    }
    for (file, stanza) in &owners {
        let regex_files = stanza.pairs.get("regexfile");
        let is_pattern = regex_files.is_some_and(|(_, values)| values.iter().any(|it| it == file));
        let key = if is_pattern { "regexfile" } else { "nodefile" };
        let line = stanza.pairs.get(key).map_or(stanza.line, |(line, _)| *line);
        let Some(text) = (import.node_file)(file) else {
            let detail = format!("{}: there is no node file {file}", stanza.name);
            import.add_fault(&stanza.file, line, detail);
            continue;
        };
        if is_pattern
            || Path::new(file)
                .extension()
                .is_some_and(|extension| extension == "regex")
        {
            import_pattern(import, stanza, file, &text);
        } else {
            let mut reader = NodeFileReader {
                import,
                pool: &stanza.name,
                owners: &owners,
                open_files: Vec::new(),
            };
            reader.read_file(file, &text);
        }
    }
}

/// Reads the regular expression of a pattern file.
fn import_pattern(import: &mut ImportState<'_>, stanza: &Stanza, file: &str, text: &str) {
    let content: Vec<(usize, &str)> = content_lines(text).collect();
    let [(line, pattern)] = content.as_slice() else {
        let line = content.get(1).map_or(0, |(line, _)| *line);
        let detail = "holds one expression on one line, no more and no less";
        import.add_fault(file, line, detail);
        return;
    };
    import.record_line(pointer(&["pools", &stanza.name, "pattern"]), file, *line);
    if let Some(pool) = import.policy.pools.get_mut(&stanza.name) {
        pool.pattern = Some((*pattern).to_owned());
    }
}

/// Returns number and text of the lines of a file, without comments and empty lines.
fn content_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

struct NodeFileReader<'a, 'b> {
    import: &'a mut ImportState<'b>,
    pool: &'a str,
    /// Pool stanza of each node file that a pool names.
    owners: &'a BTreeMap<&'a str, &'a Stanza>,
    /// Names of the files being read, the outermost first.
    open_files: Vec<String>,
}

impl NodeFileReader<'_, '_> {
    fn read_file(&mut self, file: &str, text: &str) {
        self.open_files.push(file.to_owned());
        for (line, text_line) in content_lines(text) {
            let tokens = text_line.split('#').next().unwrap_or("");
            let tokens: Vec<&str> = tokens
                .split([' ', '\t', ','])
                .filter(|it| !it.is_empty())
                .collect();
            match tokens.as_slice() {
                ["import", imported_file] => self.import_file(file, line, imported_file),
                [node] => self.add_node(file, line, node),
                _ => {
                    let detail = format!("{text_line:?} is neither one name nor `import FILE`");
                    self.import.add_fault(file, line, detail);
                }
            }
        }
        self.open_files.pop();
    }

    fn import_file(&mut self, file: &str, line: usize, imported_file: &str) {
        // Nodes of a file that a pool names belong to that pool only.
        if self.owners.contains_key(imported_file) {
            return;
        }
        if self
            .open_files
            .iter()
            .any(|open_file| open_file == imported_file)
            || self.open_files.len() >= MAX_DEPTH
        {
            self.import.add_fault(
                file,
                line,
                format!("import {imported_file}: files import one another"),
            );
            return;
        }
        if let Some(text) = (self.import.node_file)(imported_file) {
            self.read_file(imported_file, &text);
        } else {
            let detail = format!("import {imported_file}: there is no such file");
            self.import.add_fault(file, line, detail);
        }
    }

    fn add_node(&mut self, file: &str, line: usize, node: &str) {
        let Some(pool) = self.import.policy.pools.get_mut(self.pool) else {
            return;
        };
        let index = pool.nodes.len().to_string();
        pool.nodes.push(node.to_owned());
        let path = pointer(&["pools", self.pool, "nodes", &index]);
        self.import.record_line(path, file, line);
    }
}
