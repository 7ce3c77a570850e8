//! Imports the configuration of DUCC: stanza files, node files and properties.
//!
//! The result is an ordinary policy document, checked by the same rules. Faults name the file and
//! line they come from. A setting that has no effect in Hayward is accepted with a note.

mod attributes;
mod nodes;
mod properties;
mod stanza;

use std::collections::BTreeMap;
use std::fmt;

use hayward_rm_scheduler_api::policy::{Policy, Tunables};

use crate::validate;
use stanza::{Kind, Stanza};

/// Name and text of a file.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

/// The files to read. Node files are looked up by the names in pools and `import` lines.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub classes: Source<'a>,
    pub users: Option<Source<'a>>,
    pub properties: Option<Source<'a>>,
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
struct Spot {
    file: String,
    line: usize,
}

/// State of an import.
struct Import<'a> {
    node_file: &'a dyn Fn(&str) -> Option<String>,
    policy: Policy,
    /// File and line of each part of the document, by JSON pointer.
    spots: BTreeMap<String, Spot>,
    faults: Vec<FileFault>,
    notes: Vec<String>,
}

impl Import<'_> {
    fn fault(&mut self, file: &str, line: usize, detail: impl Into<String>) {
        self.faults.push(FileFault {
            file: file.to_owned(),
            line: (line > 0).then_some(line),
            detail: detail.into(),
        });
    }

    fn spot(&mut self, pointer: String, file: &str, line: usize) {
        let file = file.to_owned();
        self.spots.insert(pointer, Spot { file, line });
    }

    /// Returns the file and line closest to a place in the document.
    fn origin(&self, pointer: &str) -> Option<&Spot> {
        let mut at = pointer;
        loop {
            if let Some(spot) = self.spots.get(at) {
                return Some(spot);
            }
            at = &at[..at.rfind('/')?];
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
    let mut import = Import {
        node_file: input.node_file,
        policy: empty,
        spots: BTreeMap::new(),
        faults: Vec::new(),
        notes: Vec::new(),
    };
    let mut stanzas = import.stanzas(input.classes, &Kind::ALL);
    stanzas.extend(
        input
            .users
            .into_iter()
            .flat_map(|users| import.stanzas(users, &[Kind::User])),
    );
    attributes::take(&mut import, &stanzas);
    nodes::take(&mut import, &stanzas);
    if let Some(source) = input.properties {
        properties::take(&mut import, source);
    }
    // Unreadable parts would only be reported again.
    if import.faults.is_empty() {
        for fault in validate::faults(&import.policy) {
            let origin = import.origin(&fault.pointer).cloned();
            let (file, line) = origin.map_or((input.classes.name.to_owned(), 0), |spot| {
                (spot.file, spot.line)
            });
            import.fault(&file, line, fault.to_string());
        }
    }
    if !import.faults.is_empty() {
        import.faults.sort();
        return Err(import.faults);
    }
    import.notes.extend(crate::notes(&import.policy));
    let (policy, notes) = (import.policy, import.notes);
    Ok(Imported { policy, notes })
}

impl Import<'_> {
    fn stanzas(&mut self, source: Source<'_>, allowed: &[Kind]) -> Vec<Stanza> {
        let (stanzas, faults) = stanza::parse(source);
        self.faults.extend(faults);
        let (good, others): (Vec<Stanza>, Vec<Stanza>) = stanzas
            .into_iter()
            .partition(|it| allowed.contains(&it.kind));
        for other in others {
            let detail = "only users are defined here: move it to the file of classes";
            self.fault(source.name, other.line, detail);
        }
        good
    }
}

#[cfg(test)]
mod tests;
