//! Translates the attributes of a stanza to fields of the document.

use std::fmt::Display;
use std::str::FromStr;

use hayward_rm_scheduler_api::policy::{Class, Pool, SharePolicy, UserPolicy};
use hayward_vocabulary::{Quantum, Size};

use super::Import;
use super::stanza::{Kind, Stanza};
use crate::fault::pointer;

/// Adds every stanza to the document, in the order of definition.
pub(super) fn take(import: &mut Import<'_>, stanzas: &[Stanza]) {
    for (place, stanza) in (0_u64..).zip(stanzas) {
        let at = pointer(&[stanza.kind.section(), &stanza.name]);
        if let Some(first) = import.spots.get(&at) {
            let (file, line) = (&first.file, first.line);
            let detail = format!("{} is defined already, in {file}:{line}", stanza.name);
            import.fault(&stanza.file, stanza.line, detail);
            continue;
        }
        import.spot(at, &stanza.file, stanza.line);
        let mut reading = Reading { import, stanza };
        match stanza.kind {
            Kind::Nodepool => reading.pool(place),
            Kind::Class => reading.class(place),
            Kind::User => reading.user(),
        }
    }
}

struct Reading<'a, 'b> {
    import: &'a mut Import<'b>,
    stanza: &'a Stanza,
}

impl Reading<'_, '_> {
    fn fault(&mut self, line: usize, detail: impl Into<String>) {
        let detail = format!("{}: {}", self.stanza.name, detail.into());
        self.import.fault(&self.stanza.file, line, detail);
    }

    /// Stores the line that a field of the document comes from.
    fn spot(&mut self, field: &str, line: usize) {
        let at = pointer(&[self.stanza.kind.section(), &self.stanza.name, field]);
        self.import.spot(at, &self.stanza.file, line);
    }

    /// Parses the single value of a key and stores its place.
    fn one<T: FromStr>(&mut self, key: &str, field: &str, what: &str) -> Option<T>
    where
        T::Err: Display,
    {
        let (line, values) = self.stanza.pairs.get(key)?;
        self.spot(field, *line);
        let [value] = values.as_slice() else {
            let all = values.join(" ");
            self.fault(
                *line,
                format!("{key} has one value, not {all:?}; pairs end with ;"),
            );
            return None;
        };
        let read = value.parse();
        if read.is_err() {
            self.fault(*line, format!("{key} is {value:?}, which is not {what}"));
        }
        read.ok()
    }

    fn text(&mut self, key: &str, field: &str) -> Option<String> {
        self.one(key, field, "a word")
    }

    fn number<T: FromStr>(&mut self, key: &str, field: &str) -> Option<T>
    where
        T::Err: Display,
    {
        self.one(key, field, "a number that can be used here")
    }

    fn flag(&mut self, key: &str, field: &str) -> Option<bool> {
        let Flag(flag) = self.one(key, field, "true or false")?;
        Some(flag)
    }

    fn known(&mut self, known: &[&str], also: &str) {
        let stanza = self.stanza;
        for (key, (line, _)) in &stanza.pairs {
            let prefixed = !also.is_empty() && key.starts_with(also);
            if !known.contains(&key.as_str()) && !prefixed {
                let detail = format!("{key} is not known here; known are {}", known.join(", "));
                self.fault(*line, detail);
            }
        }
    }

    fn pool(&mut self, place: u64) {
        self.known(
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
            self.fault(self.stanza.line, detail);
        }
        let quantum: Option<u64> = self.number("share-quantum", "quantum");
        let pool = Pool {
            parent: self.text("parent", "parent"),
            search_order: self.number("search-order", "search_order").unwrap_or(100),
            place: Some(place),
            quantum: quantum.map(quantum_of),
            domain: self.text("domain", "domain"),
            // DUCC has no pools that agents name.
            declared: false,
            ..Pool::default()
        };
        self.import
            .policy
            .pools
            .insert(self.stanza.name.clone(), pool);
    }

    fn class(&mut self, place: u64) {
        self.known(
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
        let policy = self.one("policy", "policy", "FAIR_SHARE, FIXED_SHARE or RESERVE");
        let users = self.stanza.pairs.get("users");
        if let Some((line, _)) = users {
            self.spot("users", *line);
        }
        if self.stanza.parent.is_some() {
            self.spot("parent", self.stanza.line);
        }
        let class = Class {
            parent: self.stanza.parent.clone(),
            is_abstract: self.flag("abstract", "abstract").unwrap_or(false),
            policy: policy.map(|Share(policy)| policy),
            priority: self.number("priority", "priority"),
            weight: self.number("weight", "weight"),
            pool: self.text("nodepool", "pool"),
            default: self.flag("default", "default").unwrap_or(false),
            debug: self.text("debug", "debug"),
            users: users.map(|(_, names)| names.clone()),
            place: Some(place),
            initialization_cap: self.number("initialization-cap", "initialization_cap"),
            expand_by_doubling: self.flag("expand-by-doubling", "expand_by_doubling"),
            use_prediction: self.flag("use-prediction", "use_prediction"),
            prediction_fudge_ms: self.number("prediction-fudge", "prediction_fudge_ms"),
            enforce: self.flag("enforce", "enforce"),
            max_processes: self.number("max-processes", "max_processes"),
            max_machines: self.number("max-machines", "max_machines"),
            cap: self.number("cap", "cap"),
            // DUCC has no such field.
            wait_target_s: None,
        };
        self.import
            .policy
            .classes
            .insert(self.stanza.name.clone(), class);
    }

    fn user(&mut self) {
        const BY_CLASS: &str = "max-allotment.";
        self.known(&["max-allotment", "max-allotment.CLASS"], BY_CLASS);
        if let Some(word) = &self.stanza.parent {
            let detail = format!("{word:?} is an extra word before {{");
            self.fault(self.stanza.line, detail);
        }
        let mut user = UserPolicy {
            max_allotment_gb: self.number("max-allotment", "max_allotment_gb"),
            ..UserPolicy::default()
        };
        let stanza = self.stanza;
        for key in stanza.pairs.keys() {
            let Some(class) = key.strip_prefix(BY_CLASS) else {
                continue;
            };
            if let Some(limit) = self.number(key, "max_allotment_gb_by_class") {
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

pub(super) fn quantum_of(gigabytes: u64) -> Quantum {
    Quantum(Size::memory(gigabytes.saturating_mul(1 << 30)))
}

struct Share(SharePolicy);

impl FromStr for Share {
    type Err = &'static str;
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let all = [
            SharePolicy::FairShare,
            SharePolicy::FixedShare,
            SharePolicy::Reserve,
        ];
        let found = all.into_iter().find(|policy| policy.word() == word);
        found.map(Self).ok_or("unknown")
    }
}

pub(super) struct Flag(pub bool);

impl FromStr for Flag {
    type Err = &'static str;
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "t" | "y" | "1" => Ok(Self(true)),
            "false" | "no" | "off" | "f" | "n" | "0" => Ok(Self(false)),
            _ => Err("unknown"),
        }
    }
}
