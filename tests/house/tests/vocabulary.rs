//! Checks that identifiers, messages and comments use the terms of `docs/glossary.md`.

use std::collections::BTreeSet;
use std::path::Path;

use hayward_tests_house::debt::{Finding, assert_within_debt};
use hayward_tests_house::source::{Source, has_extension, sources};
use hayward_tests_house::{files, read};
use proc_macro2::TokenTree;
use serde_json::Value;
use syn::visit::{self, Visit};

/// Words that must not be parts of identifiers, because only insiders understand them. Each has the
/// words to use instead.
const FORBIDDEN_WORDS: [(&str, &str); 46] = [
    ("told", "reported, published, ordered_to_leave"),
    ("tell", "report, publish, notify"),
    ("tells", "reports, publishes, notifies"),
    ("said", "stated, reported, text"),
    ("say", "state, report, text"),
    ("says", "states, reports, text"),
    ("asked", "requested; module commands"),
    ("kept", "retained, stored, reserved"),
    ("beside", "in_parallel, next_to"),
    ("stirred", "dirty, changed"),
    ("anew", "rebuilt, again"),
    ("look", "read, copy, check"),
    ("looks", "reads, copies, checks"),
    ("hear", "observe, apply"),
    ("heard", "observed, last_report"),
    ("whose", "owner, key"),
    ("whom", "owner, beneficiary"),
    ("who", "owner, caller, subject"),
    ("whoever", "the noun of the thing"),
    ("nobody", "none, empty"),
    ("somebody", "the noun of the thing"),
    ("which", "id, selector"),
    ("hand", "view, effects"),
    ("desk", "cache"),
    ("shelf", "buckets"),
    ("purse", "budget"),
    ("bells", "notify"),
    ("bell", "notify"),
    ("knocks", "failed_attempts, a rate limit"),
    ("crowd", "group, load"),
    ("crowds", "groups, load"),
    ("seat", "slot, position"),
    ("seats", "slots, positions"),
    ("party", "user_count, participant"),
    ("parties", "user_counts, participants"),
    ("pulse", "heartbeat"),
    ("pulses", "heartbeats"),
    ("measured", "metrics"),
    ("room", "free_space, headroom, capacity, shared_view"),
    ("rooms", "free_space, node_index"),
    ("world", "fixture in tests, environment for a trait"),
    ("worlds", "fixtures"),
    ("stands", "state, is_held, position"),
    ("standing", "state, role, position"),
    ("lasts", "is_stable"),
    ("turns", "queue, order, fair_queue"),
];

/// Names of types that have stood for several things, with the names to use instead.
const FORBIDDEN_TYPES: [(&str, &str); 9] = [
    ("Books", "RoundState"),
    ("Kept", "TrackedVec, Retained"),
    ("Line", "LogLine, CarriedRow, ServeOrder"),
    ("Place", "ListPosition, Placement, CandidateNode"),
    ("Room", "NodeSpace, Headroom, PoolMinimum, SharedView"),
    ("Seen", "Inspection, VerifiedTokens, Redaction, MinRevision"),
    ("Trial", "DryRun, Canary, TestFleet"),
    ("Which", "Id, Selector"),
    ("World", "Fixture, Environment"),
];

/// Names that are exceptions, with the reason.
const EXCEPTIONS: [(&str, &str, &str); 3] = [
    (
        "hayward-rm-scheduler-domain",
        "standing",
        "a field and values of the type Standing",
    ),
    (
        "hayward-rm-scheduler-domain",
        "Standing",
        "the account of fairness: behind, even or ahead",
    ),
    (
        "hayward-rm-scheduler",
        "facts_kept_ms",
        "a setting in files of operators",
    ),
];

/// Phrases that must not occur in messages, with the words to use instead.
const FORBIDDEN_PHRASES: [(&str, &str); 4] = [
    (concat!("this is", " no"), "invalid …, unknown …"),
    (concat!("is", " away"), "is unavailable"),
    (concat!("that is", " none"), "unknown …, invalid …"),
    (concat!("means", " nothing"), "is invalid"),
];

/// Returns the phrases in a text, as whole words. The text `this is not JSON` has none.
fn find_phrases(text: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    FORBIDDEN_PHRASES.iter().filter(move |(phrase, _)| {
        let mut phrase_ends = text
            .match_indices(phrase)
            .map(|(index, _)| index + phrase.len());
        phrase_ends.any(|phrase_end| !text[phrase_end..].starts_with(char::is_alphanumeric))
    })
}

/// First words of comments that put a clause before the subject.
const FORBIDDEN_OPENINGS: [&str; 11] = [
    "Of", "Who", "Whoever", "Whose", "Whom", "Where", "What", "As", "Nobody", "Nothing", "Somebody",
];

/// Words of comments that stand for a thing or an action that has a name.
const FORBIDDEN_COMMENT_WORDS: [(&str, &str); 12] = [
    ("anew", "again, rebuilt"),
    ("anybody", "any caller, any work"),
    ("beside", "next to, in parallel with, in addition to"),
    ("crowd", "group, load"),
    ("everybody", "every caller, all work"),
    ("nobody", "no caller, no work"),
    ("said", "stated, reported"),
    ("somebody", "a caller, a piece of work"),
    ("stirred", "changed, dirty"),
    ("told", "reported, ordered, notified, by meaning"),
    ("whoever", "the noun of the thing"),
    ("whom", "the noun of the thing"),
];

/// Returns every name that is on the wire or in the database and therefore stays.
fn wire_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for path in files() {
        if path.starts_with("openapi") && has_extension(&path, "json") {
            let text = read(&path).unwrap_or_default();
            let document: Value = serde_json::from_str(&text).unwrap_or_default();
            add_names(&document, &mut names);
        } else if has_extension(&path, "sql") {
            let text = read(&path).unwrap_or_default();
            let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            names.extend(words.map(str::to_owned));
        }
    }
    names
}

fn add_names(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                names.insert(key.clone());
                if let ("name" | "operationId" | "const", Value::String(name)) = (&**key, value) {
                    names.insert(name.clone());
                }
                if let ("enum", Value::Array(values)) = (&**key, value) {
                    names.extend(
                        values
                            .iter()
                            .filter_map(|value| value.as_str().map(str::to_owned)),
                    );
                }
                add_names(value, names);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| add_names(value, names)),
        _ => {}
    }
}

/// Splits a name into its parts. `keptRound`, `kept_round` and `KeptRound` are `kept`, `round`.
fn split_name(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut after_lowercase = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && after_lowercase) {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().expect("one part").extend(c.to_lowercase());
        }
        after_lowercase = c.is_lowercase() || c.is_ascii_digit();
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The names that a file defines.
struct Definitions<'a> {
    wire_names: &'a BTreeSet<String>,
    names: Vec<String>,
    types: Vec<String>,
}

impl Definitions<'_> {
    fn add_type(&mut self, name: &syn::Ident) {
        self.types.push(name.to_string());
        self.add_visible(name);
    }

    /// Adds a name, unless clients or the database know it.
    fn add_visible(&mut self, name: &syn::Ident) {
        let name = name.to_string();
        if !self.wire_names.contains(&name)
            && !self.wire_names.contains(&split_name(&name).join("_"))
        {
            self.names.push(name);
        }
    }

    fn add(&mut self, name: &syn::Ident) {
        self.names.push(name.to_string());
    }
}

impl<'ast> Visit<'ast> for Definitions<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Const(item) => self.add(&item.ident),
            syn::Item::Static(item) => self.add(&item.ident),
            syn::Item::Mod(item) => self.add(&item.ident),
            syn::Item::Trait(item) => self.add_type(&item.ident),
            syn::Item::Macro(item) => item.ident.iter().for_each(|name| self.add(name)),
            syn::Item::Struct(item) => self.add_type(&item.ident),
            syn::Item::Enum(item) => self.add_type(&item.ident),
            syn::Item::Type(item) => self.add_type(&item.ident),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.add_visible(&signature.ident);
        visit::visit_signature(self, signature);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        field.ident.iter().for_each(|name| self.add_visible(name));
        visit::visit_field(self, field);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.add_visible(&variant.ident);
        visit::visit_variant(self, variant);
    }

    fn visit_pat_ident(&mut self, binding: &'ast syn::PatIdent) {
        self.add(&binding.ident);
        visit::visit_pat_ident(self, binding);
    }

    fn visit_field_pat(&mut self, field: &'ast syn::FieldPat) {
        // `Entry { kept, .. }` repeats the name of a field.
        if field.colon_token.is_some() {
            visit::visit_field_pat(self, field);
        }
    }
}

#[test]
fn identifiers_use_standard_words() {
    let wire_names = wire_names();
    let mut found = Vec::new();
    let mut types = Vec::new();
    for source in sources() {
        let mut definitions = Definitions {
            wire_names: &wire_names,
            names: Vec::new(),
            types: Vec::new(),
        };
        definitions.visit_file(&source.syntax());
        for name in definitions.types {
            let known = FORBIDDEN_TYPES.iter().find(|(word, _)| *word == name);
            types.extend(known.map(|(_, replacement)| Finding {
                package: source.package.clone(),
                text: format!("{}: {name}; say {replacement}", source.path.display()),
            }));
        }
        let names: BTreeSet<String> = definitions.names.into_iter().collect();
        for name in names.into_iter().filter(|name| !is_exception(source, name)) {
            let parts = split_name(&name);
            let word = FORBIDDEN_WORDS
                .iter()
                .find(|(word, _)| parts.iter().any(|part| part == word));
            let advice = match word {
                Some((_, replacement)) => *replacement,
                None if name == "of" => "a constructor is new, from_* or for_*",
                None => continue,
            };
            found.push(Finding {
                package: source.package.clone(),
                text: format!("{}: {name}; say {advice}", source.path.display()),
            });
        }
    }
    assert_within_debt(
        "type-names",
        "a type has a name of its own (exceptions: tests/house/tests/vocabulary.rs)",
        types,
    );
    assert_within_debt(
        "words",
        "identifiers use the words of docs/glossary.md \
         (exceptions: tests/house/tests/vocabulary.rs)",
        found,
    );
}

#[test]
fn comments_use_standard_words() {
    let mut found = Vec::new();
    for source in sources() {
        for comment in source.comments() {
            let mut words = comment.text.split(|c: char| !c.is_alphanumeric());
            let word = words.find_map(|word| {
                let known = FORBIDDEN_COMMENT_WORDS.iter();
                known
                    .into_iter()
                    .find(|(known, _)| word.eq_ignore_ascii_case(known))
            });
            found.extend(word.map(|(word, replacement)| Finding {
                package: source.package.clone(),
                text: format!(
                    "{}: {word}; say {replacement}",
                    source.location(comment.line)
                ),
            }));
        }
    }
    assert_within_debt(
        "comment-words",
        "a comment names the thing and the action (CONTRIBUTING.md)",
        found,
    );
}

fn is_exception(source: &Source, name: &str) -> bool {
    let known = EXCEPTIONS.iter();
    known
        .into_iter()
        .any(|(package, exception, _)| source.package == *package && name == *exception)
}

#[test]
fn messages_are_plain() {
    let mut found = Vec::new();
    // Reading tokens is slow, so files without any of the phrases are skipped.
    let has_phrase = |source: &&Source| {
        FORBIDDEN_PHRASES
            .iter()
            .any(|(phrase, _)| source.text.contains(phrase))
    };
    for source in sources().iter().filter(has_phrase) {
        source.for_each_token(&mut |token| {
            let TokenTree::Literal(literal) = token else {
                return;
            };
            let text = literal.to_string();
            for (phrase, replacement) in find_phrases(&text) {
                found.push(Finding {
                    package: source.package.clone(),
                    text: format!(
                        "{}: \"{phrase}\"; say \"{replacement}\"",
                        source.location(literal.span().start().line)
                    ),
                });
            }
        });
    }
    assert_within_debt("phrases", "a message names the fault in plain words", found);
}

#[test]
fn comments_begin_with_their_subject() {
    let mut found = Vec::new();
    for source in sources() {
        for comment in source.comments() {
            let opening = comment.text.split(|c: char| !c.is_alphanumeric()).next();
            let opening = opening.filter(|word| FORBIDDEN_OPENINGS.contains(word));
            found.extend(opening.map(|word| Finding {
                package: source.package.clone(),
                text: format!("{}: {word} …", source.location(comment.line)),
            }));
        }
    }
    assert_within_debt(
        "comment-openings",
        "a comment begins with its subject (CONTRIBUTING.md): turn the sentence round",
        found,
    );
}

#[test]
fn sentences_begin_with_their_subject() {
    let mut found = Vec::new();
    for source in sources() {
        for comment in source.comments() {
            let text = comment.text.replace('\n', " ");
            let later = text.split(". ").skip(1);
            let openings = later.filter_map(|sentence| sentence.split(' ').next());
            let opening = openings
                .into_iter()
                .find(|word| FORBIDDEN_OPENINGS.contains(word));
            found.extend(opening.map(|word| Finding {
                package: source.package.clone(),
                text: format!("{}: … . {word} …", source.location(comment.line)),
            }));
        }
    }
    assert_within_debt(
        "sentence-openings",
        "a sentence begins with its subject (CONTRIBUTING.md): turn it round",
        found,
    );
}

#[test]
fn documents_use_plain_phrases() {
    let mut found = Vec::new();
    let documents = files().into_iter().filter(|path| has_extension(path, "md"));
    for path in documents.filter(|path| path != Path::new("CONTRIBUTING.md")) {
        let text = read(&path).unwrap_or_default();
        for (index, line) in text.lines().enumerate() {
            found.extend(find_phrases(line).map(|(phrase, replacement)| Finding {
                package: "documents".to_owned(),
                text: format!(
                    "{}:{}: \"{phrase}\"; say \"{replacement}\"",
                    path.display(),
                    index + 1
                ),
            }));
        }
    }
    assert_within_debt("document-phrases", "a document is plain", found);
}

#[test]
fn names_are_split_into_words() {
    assert_eq!(split_name("KeptRound"), ["kept", "round"]);
    assert_eq!(split_name("told_before2"), ["told", "before2"]);
    assert_eq!(split_name("HTTPRoom"), ["httproom"]);
    assert_eq!(split_name("MAX_SPACE"), ["max", "space"]);
}
