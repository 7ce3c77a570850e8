//! Translates the attributes of a stanza to fields of the document.

use std::fmt::Display;
use std::str::FromStr;

use hayward_rm_scheduler_api::policy::{Class, Pool, SharePolicy, UserPolicy};
use hayward_vocabulary::{Quantum, Size};

use super::ImportState;
use super::stanza::{Stanza, StanzaKind};
use crate::fault::pointer;

/// Adds every stanza to the document, in the order of definition.
pub(super) fn import_stanzas(import: &mut ImportState<'_>, stanzas: &[Stanza]) {
    for (place, stanza) in (0_u64..).zip(stanzas) {
        let path = pointer(&[stanza.kind.section(), &stanza.name]);
        if let Some(earlier) = import.source_lines.get(&path) {
            let (file, line) = (&earlier.file, earlier.line);
            let detail = format!("{} is defined already, in {file}:{line}", stanza.name);
            import.add_fault(&stanza.file, stanza.line, detail);
            continue;
        }
        import.record_line(path, &stanza.file, stanza.line);
        let mut reader = StanzaReader { import, stanza };
        match stanza.kind {
            StanzaKind::Nodepool => reader.import_pool(place),
            StanzaKind::Class => reader.import_class(place),
            StanzaKind::User => reader.import_user(),
        }
    }
}

struct StanzaReader<'a, 'b> {
    import: &'a mut ImportState<'b>,
    stanza: &'a Stanza,
}

impl StanzaReader<'_, '_> {
    fn add_fault(&mut self, line: usize, detail: impl Into<String>) {
        let detail = format!("{}: {}", self.stanza.name, detail.into());
        self.import.add_fault(&self.stanza.file, line, detail);
    }

    /// Stores the line that a field of the document comes from.
    fn record_line(&mut self, field: &str, line: usize) {
        let path = pointer(&[self.stanza.kind.section(), &self.stanza.name, field]);
        self.import.record_line(path, &self.stanza.file, line);
    }

    /// Parses the single value of a key and records its line.
    fn parse_single<T: FromStr>(&mut self, key: &str, field: &str, expected: &str) -> Option<T>
    where
        T::Err: Display,
    {
        let (line, values) = self.stanza.pairs.get(key)?;
        self.record_line(field, *line);
        let [value] = values.as_slice() else {
            let joined = values.join(" ");
            self.add_fault(
                *line,
                format!("{key} has one value, not {joined:?}; pairs end with ;"),
            );
            return None;
        };
        let parsed = value.parse();
        if parsed.is_err() {
            self.add_fault(
                *line,
                format!("{key} is {value:?}, which is not {expected}"),
            );
        }
        parsed.ok()
    }

    fn parse_text(&mut self, key: &str, field: &str) -> Option<String> {
        self.parse_single(key, field, "a word")
    }

    fn parse_number<T: FromStr>(&mut self, key: &str, field: &str) -> Option<T>
    where
        T::Err: Display,
    {
        self.parse_single(key, field, "a number that can be used here")
    }

    fn parse_flag(&mut self, key: &str, field: &str) -> Option<bool> {
        let Flag(flag) = self.parse_single(key, field, "true or false")?;
        Some(flag)
    }

    fn check_keys(&mut self, known: &[&str], allowed_prefix: &str) {
        let stanza = self.stanza;
        for (key, (line, _)) in &stanza.pairs {
            let has_prefix = !allowed_prefix.is_empty() && key.starts_with(allowed_prefix);
            if !known.contains(&key.as_str()) && !has_prefix {
                let detail = format!("{key} is not known here; known are {}", known.join(", "));
                self.add_fault(*line, detail);
            }
        }
    }

    fn import_pool(&mut self, place: u64) {
        self.check_keys(
            &[
                "nodefile",
                "regexfile",
                "parent",
                "search-order",
                "share-quantum",
                "domain",
            ],
            "",
        );
        if let Some(parent) = &self.stanza.parent {
            let detail = format!("write `parent = {parent}` inside: a pool names it there");
            self.add_fault(self.stanza.line, detail);
        }
        let quantum: Option<u64> = self.parse_number("share-quantum", "quantum");
        let pool = Pool {
            parent: self.parse_text("parent", "parent"),
            search_order: self
                .parse_number("search-order", "search_order")
                .unwrap_or(100),
            place: Some(place),
            quantum: quantum.map(quantum_from_gb),
            domain: self.parse_text("domain", "domain"),
            // DUCC has no pools that agents name.
            declared: false,
            ..Pool::default()
        };
        self.import
            .policy
            .pools
            .insert(self.stanza.name.clone(), pool);
    }

    fn import_class(&mut self, place: u64) {
        self.check_keys(
            &[
                "policy",
                "priority",
                "weight",
                "nodepool",
                "abstract",
                "default",
                "debug",
                "users",
                "initialization-cap",
                "expand-by-doubling",
                "use-prediction",
                "prediction-fudge",
                "enforce",
                "max-processes",
                "max-machines",
                "cap",
            ],
            "",
        );
        let policy = self.parse_single("policy", "policy", "FAIR_SHARE, FIXED_SHARE or RESERVE");
        let users = self.stanza.pairs.get("users");
        if let Some((line, _)) = users {
            self.record_line("users", *line);
        }
        if self.stanza.parent.is_some() {
            self.record_line("parent", self.stanza.line);
        }
        let class = Class {
            parent: self.stanza.parent.clone(),
            is_abstract: self.parse_flag("abstract", "abstract").unwrap_or(false),
            policy: policy.map(|PolicyKeyword(policy)| policy),
            priority: self.parse_number("priority", "priority"),
            weight: self.parse_number("weight", "weight"),
            pool: self.parse_text("nodepool", "pool"),
            default: self.parse_flag("default", "default").unwrap_or(false),
            debug: self.parse_text("debug", "debug"),
            users: users.map(|(_, names)| names.clone()),
            place: Some(place),
            initialization_cap: self.parse_number("initialization-cap", "initialization_cap"),
            expand_by_doubling: self.parse_flag("expand-by-doubling", "expand_by_doubling"),
            use_prediction: self.parse_flag("use-prediction", "use_prediction"),
            prediction_fudge_ms: self.parse_number("prediction-fudge", "prediction_fudge_ms"),
            enforce: self.parse_flag("enforce", "enforce"),
            max_processes: self.parse_number("max-processes", "max_processes"),
            max_machines: self.parse_number("max-machines", "max_machines"),
            cap: self.parse_number("cap", "cap"),
            // DUCC has no such field.
            wait_target_s: None,
        };
        self.import
            .policy
            .classes
            .insert(self.stanza.name.clone(), class);
    }

    fn import_user(&mut self) {
        const CLASS_KEY_PREFIX: &str = "max-allotment.";
        self.check_keys(&["max-allotment", "max-allotment.CLASS"], CLASS_KEY_PREFIX);
        if let Some(extra) = &self.stanza.parent {
            let detail = format!("{extra:?} is an extra word before {{");
            self.add_fault(self.stanza.line, detail);
        }
        let mut user = UserPolicy {
            max_allotment_gb: self.parse_number("max-allotment", "max_allotment_gb"),
            ..UserPolicy::default()
        };
        let stanza = self.stanza;
        for key in stanza.pairs.keys() {
            let Some(class) = key.strip_prefix(CLASS_KEY_PREFIX) else {
                continue;
            };
            if let Some(limit) = self.parse_number(key, "max_allotment_gb_by_class") {
                user.max_allotment_gb_by_class
                    .insert(class.to_owned(), limit);
            }
        }
        self.import
            .policy
            .users
            .insert(self.stanza.name.clone(), user);
    }
}

pub(super) fn quantum_from_gb(gigabytes: u64) -> Quantum {
    Quantum(Size::memory(gigabytes.saturating_mul(1 << 30)))
}

struct PolicyKeyword(SharePolicy);

impl FromStr for PolicyKeyword {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let policies = [
            SharePolicy::FairShare,
            SharePolicy::FixedShare,
            SharePolicy::Reserve,
        ];
        let found = policies.into_iter().find(|policy| policy.as_str() == text);
        found.map(Self).ok_or("unknown")
    }
}

pub(super) struct Flag(pub bool);

impl FromStr for Flag {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "t" | "y" | "1" => Ok(Self(true)),
            "false" | "no" | "off" | "f" | "n" | "0" => Ok(Self(false)),
            _ => Err("unknown"),
        }
    }
}
