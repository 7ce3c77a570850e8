//! Imports the configuration of Apache UIMA DUCC, another cluster manager: stanza files, node files
//! and properties. A stanza defines one node pool, class or user.
//! The result is an ordinary policy document, checked by the same rules. A fault names its file and
//! line. A setting that has no effect in Hayward is accepted with a note.

mod attributes;
mod nodes;
mod properties;
mod stanza;

use std::collections::BTreeMap;
use std::fmt;

use hayward_rm_scheduler_api::policy::{Policy, Tunables};

use crate::validate;
use stanza::{Stanza, StanzaKind};

/// Name and text of a file.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

/// The files to read.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub classes: Source<'a>,
    pub users: Option<Source<'a>>,
    pub properties: Option<Source<'a>>,
    /// Returns the text of a node file by its name in a pool or an `import` line. `None` if there
    /// is no such file.
    pub node_file: &'a dyn Fn(&str) -> Option<String>,
}

/// The imported document, and notes about settings without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub policy: Policy,
    pub notes: Vec<String>,
}

/// A fault with its file and line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileFault {
    pub file: String,
    /// Line number from 1. `None` if the fault concerns the whole file.
    pub line: Option<usize>,
    pub detail: String,
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.detail),
            None => write!(f, "{}: {}", self.file, self.detail),
        }
    }
}

/// The file and line that a part of the document comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceLine {
    file: String,
    line: usize,
}

/// State of an import.
struct ImportState<'a> {
    node_file: &'a dyn Fn(&str) -> Option<String>,
    policy: Policy,
    /// File and line of each part of the document, by JSON pointer.
    source_lines: BTreeMap<String, SourceLine>,
    faults: Vec<FileFault>,
    notes: Vec<String>,
}

impl ImportState<'_> {
    fn add_fault(&mut self, file: &str, line: usize, detail: impl Into<String>) {
        self.faults.push(FileFault {
            file: file.to_owned(),
            line: (line > 0).then_some(line),
            detail: detail.into(),
        });
    }

    fn record_line(&mut self, pointer: String, file: &str, line: usize) {
        let file = file.to_owned();
        self.source_lines.insert(pointer, SourceLine { file, line });
    }

    /// Returns the file and line of this JSON pointer, or of its nearest parent with a known line.
    fn find_line(&self, pointer: &str) -> Option<&SourceLine> {
        let mut prefix = pointer;
        loop {
            if let Some(line) = self.source_lines.get(prefix) {
                return Some(line);
            }
            prefix = &prefix[..prefix.rfind('/')?];
        }
    }
}

/// Imports a policy from these files.
///
/// # Errors
/// Returns all faults, by file and line.
pub fn import(input: Input<'_>) -> Result<Imported, Vec<FileFault>> {
    let empty = Policy {
        pools: BTreeMap::new(),
        classes: BTreeMap::new(),
        tunables: Tunables::default(),
        ..Policy::default()
    };
    let mut state = ImportState {
        node_file: input.node_file,
        policy: empty,
        source_lines: BTreeMap::new(),
        faults: Vec::new(),
        notes: Vec::new(),
    };
    let mut stanzas = state.parse_stanzas(input.classes, &StanzaKind::ALL);
    stanzas.extend(
        input
            .users
            .into_iter()
            .flat_map(|users| state.parse_stanzas(users, &[StanzaKind::User])),
    );
    attributes::import_stanzas(&mut state, &stanzas);
    nodes::import_node_files(&mut state, &stanzas);
    if let Some(source) = input.properties {
        properties::import_properties(&mut state, source);
    }
    // After a fault of the files, the checks of the document would only repeat it.
    if state.faults.is_empty() {
        for fault in validate::faults(&state.policy) {
            let origin = state.find_line(&fault.pointer).cloned();
            let (file, line) = origin.map_or((input.classes.name.to_owned(), 0), |source| {
                (source.file, source.line)
            });
            state.add_fault(&file, line, fault.to_string());
        }
    }
    if !state.faults.is_empty() {
        state.faults.sort();
        return Err(state.faults);
    }
    state.notes.extend(crate::notes(&state.policy));
    let (policy, notes) = (state.policy, state.notes);
    Ok(Imported { policy, notes })
}

impl ImportState<'_> {
    fn parse_stanzas(&mut self, source: Source<'_>, allowed: &[StanzaKind]) -> Vec<Stanza> {
        let (stanzas, faults) = stanza::parse(source);
        self.faults.extend(faults);
        let (accepted, rejected): (Vec<Stanza>, Vec<Stanza>) = stanzas
            .into_iter()
            .partition(|it| allowed.contains(&it.kind));
        for stanza in rejected {
            let detail = "only users are defined here: move it to the file of classes";
            self.add_fault(source.name, stanza.line, detail);
        }
        accepted
    }
}

#[cfg(test)]
mod tests;
