//! Reads the configuration of the original: stanza files (3.3), node files, properties (3.5).
//!
//! What comes out is a document like any other. It is checked by the same rules, and what they
//! find is told with the file and line it came from. What has a meaning there and none here is
//! accepted with a note.

mod attributes;
mod nodes;
mod properties;
mod stanza;

use std::collections::BTreeMap;
use std::fmt;

use hayward_rm_scheduler_api::policy::{Policy, Tunables};

use crate::validate;
use attributes::Kind;
use stanza::Stanza;

/// A file as it is called and what it says.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

/// What to read. Node files are asked for by the names that pools and `import` lines say.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub classes: Source<'a>,
    pub users: Option<Source<'a>>,
    pub properties: Option<Source<'a>>,
    pub node_file: &'a dyn Fn(&str) -> Option<String>,
}

/// What was read, and what of it has no effect here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub policy: Policy,
    pub notes: Vec<String>,
}

/// What is wrong, by file and line.
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

/// Where something of the document stands in the files.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Spot {
    file: String,
    line: usize,
}

/// What has been read so far.
struct Import<'a> {
    node_file: &'a dyn Fn(&str) -> Option<String>,
    policy: Policy,
    /// By JSON pointer into the document.
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

    /// The nearest place that a fault of the document came from.
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

/// The policy that these files say, or all that is wrong with them.
///
/// # Errors
/// All faults at once, by file and line.
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
    // What could not be read would only be told again.
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
