//! Placement rules, which assign applications to queues. The first rule that gives an allowed queue
//! applies.

use std::{collections::BTreeMap, fmt};

use hayward_rm_scheduler_domain::{
    Reason,
    snapshot::queues::{Filter, QueueSource, Queued, Queues, Rule},
};
use hayward_vocabulary::Timestamp;
use regex::Regex;
use serde_json::Value;

use crate::{
    amount::parse_amounts,
    queue_tree::{ROOT, Tree},
    resource_vec::ResourceTypes,
};

const DEFAULT_QUEUE: &str = "root.default";
const MAX_NAME_LENGTH: usize = 64;
/// Maximum number of queues in a message.
const MAX_LISTED_QUEUES: usize = 8;

/// Reason why an application gets no queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub reason: Reason,
    pub detail: String,
}

impl Refusal {
    fn new(reason: Reason, detail: String) -> Self {
        Self { reason, detail }
    }
}

/// Placement rules of one pool, with compiled regular expressions.
pub(crate) struct Rules<'a>(Vec<CompiledRule<'a>>);

struct CompiledRule<'a> {
    rule: &'a Rule,
    users: NameMatcher<'a>,
    groups: NameMatcher<'a>,
    parent: Option<Box<CompiledRule<'a>>>,
}

/// A list of names, or one regular expression. An invalid regular expression never matches.
enum NameMatcher<'a> {
    List(&'a [String]),
    Regex(Regex),
    Never,
}

impl<'a> NameMatcher<'a> {
    fn new(entries: &'a [String]) -> Self {
        let is_plain = |text: &str| {
            text.chars()
                .all(|character| character.is_alphanumeric() || "_.@-".contains(character))
        };
        match entries {
            [single] if !is_plain(single) => {
                let regex = Regex::new(&format!("^(?:{single})$"));
                regex.map_or(Self::Never, Self::Regex)
            }
            entries => Self::List(entries),
        }
    }

    fn contains(&self, name: &str) -> bool {
        match self {
            Self::List(names) => names.iter().any(|known| known == name),
            Self::Regex(regex) => regex.is_match(name),
            Self::Never => false,
        }
    }
}

impl<'a> CompiledRule<'a> {
    fn new(rule: &'a Rule) -> Self {
        let filter = rule.filter.as_ref();
        let matcher_of = |select: fn(&Filter) -> &Vec<String>| {
            let names = filter.map(select);
            NameMatcher::new(names.map_or(&[][..], |names| &names[..]))
        };
        Self {
            rule,
            users: matcher_of(|filter| &filter.users),
            groups: matcher_of(|filter| &filter.groups),
            parent: rule.parent.as_deref().map(|rule| Self::new(rule).into()),
        }
    }

    fn applies_to(&self, submitter: Submitter) -> bool {
        let Some(filter) = self.rule.filter.as_ref() else {
            return true;
        };
        if filter.users.is_empty() && filter.groups.is_empty() {
            return true;
        }
        let is_group_listed = || {
            submitter
                .groups
                .iter()
                .any(|group| self.groups.contains(group))
        };
        (self.users.contains(submitter.user) || is_group_listed()) == filter.allow
    }
}

/// User and groups of an application, and what it asks for.
#[derive(Clone, Copy)]
pub(crate) struct Submitter<'a> {
    pub user: &'a str,
    pub groups: &'a [String],
    /// Requested queue and tags. `None` if the application has no work.
    pub queued: Option<&'a Queued>,
    /// Time of the submission.
    pub submitted: Timestamp,
}

/// Maximum number of groups in a message.
const MAX_LISTED_GROUPS: usize = 8;

impl fmt::Display for Submitter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}", self.user)?;
        let listed = &self.groups[..self.groups.len().min(MAX_LISTED_GROUPS)];
        if listed.is_empty() {
            return Ok(());
        }
        let suffix = if listed.len() < self.groups.len() {
            ", …"
        } else {
            ""
        };
        write!(f, " (groups {}{suffix})", listed.join(", "))
    }
}

/// Result of one rule.
enum RuleResult {
    NoMatch,
    Path(String),
    InvalidName(String),
}

impl<'a> Rules<'a> {
    pub fn new(queues: &'a Queues) -> Self {
        Self(queues.placement.iter().map(CompiledRule::new).collect())
    }

    /// Returns the queue for an application, and creates missing queues if the rule allows it.
    /// Without rules the requested queue applies. If no rule gives an allowed queue, the
    /// application gets `root.default`, or the last refusal if it may not use that queue.
    pub fn place(
        &self,
        tree: &mut Tree,
        dims: &ResourceTypes,
        submitter: Submitter,
    ) -> Result<usize, Refusal> {
        let mut last_refusal = Refusal::new(Reason::NoClass, "no queue is named".to_owned());
        let provided = Rule {
            source: QueueSource::Provided,
            create: false,
            parent: None,
            filter: None,
        };
        let default_rules = [CompiledRule::new(&provided)];
        let rules = if self.0.is_empty() {
            &default_rules
        } else {
            &self.0[..]
        };
        for rule in rules {
            match apply_rule(rule, tree, submitter) {
                RuleResult::NoMatch => {}
                RuleResult::InvalidName(detail) => {
                    return Err(Refusal::new(Reason::UnknownClass, detail));
                }
                RuleResult::Path(path) => {
                    match check_target(tree, &path, rule.rule.create, submitter) {
                        Ok(()) => {
                            return tree.find_or_create(dims, &path).ok_or_else(|| {
                                Refusal::new(Reason::UnknownClass, format!("no queue {path}"))
                            });
                        }
                        Err(refusal) => last_refusal = refusal,
                    }
                }
            }
        }
        match tree.find(DEFAULT_QUEUE) {
            Some(default) if check_target(tree, DEFAULT_QUEUE, false, submitter).is_ok() => {
                Ok(default)
            }
            _ => Err(last_refusal),
        }
    }
}

/// Returns the path of the queue that a rule gives, below the queue of its parent rule.
fn apply_rule(compiled: &CompiledRule, tree: &Tree, submitter: Submitter) -> RuleResult {
    if !compiled.applies_to(submitter) {
        return RuleResult::NoMatch;
    }
    let name = match &compiled.rule.source {
        QueueSource::Provided => submitter.queued.and_then(|queued| queued.queue.as_deref()),
        QueueSource::User => Some(submitter.user),
        QueueSource::Fixed(value) => Some(value.as_str()),
        QueueSource::Tag(tag) => submitter
            .queued
            .and_then(|it| it.tags.get(tag))
            .map(String::as_str),
    };
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return RuleResult::NoMatch;
    };
    let name = name.to_lowercase();
    let is_full_path = name == "root" || name.starts_with("root.");
    let is_fixed = matches!(compiled.rule.source, QueueSource::Fixed(_));
    // A user name is never a path.
    if is_full_path && compiled.rule.source != QueueSource::User {
        return check_path(name);
    }
    // A generated name is a single path segment.
    let name = if is_fixed {
        name
    } else {
        name.replace('.', "_dot_")
    };
    let parent_path = match &compiled.parent {
        None => "root".to_owned(),
        Some(parent) => match apply_rule(parent, tree, submitter) {
            RuleResult::Path(path) => {
                let (nearest, exists) = tree.nearest(&path);
                if tree.entries[nearest].leaf || !(exists || parent.rule.create) {
                    return RuleResult::NoMatch;
                }
                path
            }
            other => return other,
        },
    };
    check_path(format!("{parent_path}.{name}"))
}

fn check_path(path: String) -> RuleResult {
    let is_valid = |name: &str| {
        (1..=MAX_NAME_LENGTH).contains(&name.len())
            && name
                .chars()
                .all(|it| it.is_ascii_alphanumeric() || "_:#/@-".contains(it))
    };
    if path.split('.').all(is_valid) {
        return RuleResult::Path(path);
    }
    RuleResult::InvalidName(format!("{path:?} cannot be the name of a queue"))
}

/// Checks whether the application may be placed in the queue with this path.
fn check_target(
    tree: &Tree,
    path: &str,
    may_create: bool,
    submitter: Submitter,
) -> Result<(), Refusal> {
    let (nearest, exists) = tree.nearest(path);
    let queue_state = &tree.entries[nearest];
    if !exists && (!may_create || queue_state.leaf) {
        let detail = format!(
            "there is no queue {path}; the nearest is {}",
            queue_state.path
        );
        return Err(Refusal::new(Reason::UnknownClass, detail));
    }
    if exists && !queue_state.leaf {
        let children: Vec<&str> = queue_state
            .children
            .keys()
            .take(MAX_LISTED_QUEUES)
            .map(String::as_str)
            .collect();
        let children = children.join(", ");
        let detail = format!("queue {path} takes no applications; below it are {children}");
        return Err(Refusal::new(Reason::UnknownClass, detail));
    }
    // An application that was submitted before the drain began still belongs to the queue.
    let is_closed = |queue: usize| {
        let queue_state = &tree.entries[queue];
        let drain_start = queue_state.config.and_then(|queue| queue.drain_began_at);
        queue_state.draining && drain_start.is_none_or(|start| submitter.submitted >= start)
    };
    if tree.path(nearest).any(is_closed) {
        let detail = format!("queue {path} is draining: it takes no new applications");
        return Err(Refusal::new(Reason::UnknownClass, detail));
    }
    let is_admitted = |queue: usize| {
        let config = tree.entries[queue].config;
        config.is_some_and(|queue| {
            queue.submit.admits(submitter.user, submitter.groups)
                || queue.admin.admits(submitter.user, submitter.groups)
        })
    };
    if tree.path(nearest).any(is_admitted) {
        return Ok(());
    }
    let detail = format!("{submitter} may not submit to queue {path}");
    Err(Refusal::new(Reason::NotAuthorised, detail))
}

/// Applies the tags of an application to the queue created for it: the maximum, the guarantee, and
/// the maximum number of applications.
pub(crate) fn apply_tags(tree: &mut Tree, dims: &ResourceTypes, queue: usize, queued: &Queued) {
    let parse_amounts_tag = |tag: &str| {
        let text = queued.tags.get(tag)?;
        let value: Value = serde_json::from_str(text).ok()?;
        let (amounts, faults) = parse_amounts(&value);
        faults.is_empty().then(|| dims.limit_vector(&amounts))
    };
    if queue == ROOT || tree.entries[queue].config.is_some() {
        return;
    }
    let queue_state = &mut tree.entries[queue];
    if let Some(max) = parse_amounts_tag("namespace.resourcequota") {
        queue_state.max = max;
    }
    if let Some(guaranteed) = parse_amounts_tag("namespace.resourceguaranteed") {
        queue_state.guaranteed = guaranteed;
    }
    let max_applications = queued.tags.get("namespace.resourcemaxapps");
    if let Some(max_applications) =
        max_applications.and_then(|max_applications| max_applications.parse().ok())
    {
        queue_state.max_applications = Some(max_applications);
    }
}

/// Submission time of the latest application in each queue. The tags of that application
/// apply to a created queue.
#[derive(Default)]
pub(crate) struct LatestTags(BTreeMap<usize, Timestamp>);

impl LatestTags {
    /// Records the application. Returns whether no later one was recorded before.
    pub fn insert_if_newer(&mut self, queue: usize, submitted: Timestamp) -> bool {
        let latest = self.0.entry(queue).or_insert(submitted);
        let is_newer = submitted >= *latest;
        *latest = submitted.max(*latest);
        is_newer
    }
}
