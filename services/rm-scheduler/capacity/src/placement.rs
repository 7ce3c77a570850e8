//! Placement of applications into queues, and access checks.

use std::fmt;

use hayward_rm_scheduler_domain::{
    Reason,
    snapshot::queues::{By, Filter, Queued, Queues, Rule},
};
use hayward_vocabulary::Timestamp;
use regex::Regex;
use serde_json::Value;

use crate::{
    amount::amounts,
    resource_vec::ResourceTypes,
    tree::{ROOT, Tree},
};

const DEFAULT: &str = "root.default";
const NAME_CHARACTERS: usize = 64;

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

/// Placement rules of one pool, with compiled expressions.
pub(crate) struct Rules<'a>(Vec<Compiled<'a>>);

struct Compiled<'a> {
    rule: &'a Rule,
    users: Names<'a>,
    groups: Names<'a>,
    parent: Option<Box<Compiled<'a>>>,
}

/// Names, or one expression; an invalid expression matches nothing.
enum Names<'a> {
    Listed(&'a [String]),
    Like(Regex),
    Nothing,
}

impl<'a> Names<'a> {
    fn new(entries: &'a [String]) -> Self {
        let plain = |it: &str| {
            it.chars()
                .all(|c| c.is_alphanumeric() || "_.@-".contains(c))
        };
        match entries {
            [single] if !plain(single) => {
                let whole = Regex::new(&format!("^(?:{single})$"));
                whole.map_or(Self::Nothing, Self::Like)
            }
            entries => Self::Listed(entries),
        }
    }

    fn contains(&self, name: &str) -> bool {
        match self {
            Self::Listed(names) => names.iter().any(|known| known == name),
            Self::Like(expression) => expression.is_match(name),
            Self::Nothing => false,
        }
    }
}

impl<'a> Compiled<'a> {
    fn new(rule: &'a Rule) -> Self {
        let filter = rule.filter.as_ref();
        let names = |select: fn(&Filter) -> &Vec<String>| {
            let listed = filter.map(select);
            Names::new(listed.map_or(&[][..], |names| &names[..]))
        };
        Self {
            rule,
            users: names(|filter| &filter.users),
            groups: names(|filter| &filter.groups),
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
        let group = || {
            submitter
                .groups
                .iter()
                .any(|group| self.groups.contains(group))
        };
        (self.users.contains(submitter.user) || group()) == filter.allow
    }
}

/// User and groups of an application.
#[derive(Clone, Copy)]
pub(crate) struct Submitter<'a> {
    pub user: &'a str,
    pub groups: &'a [String],
    pub queued: Option<&'a Queued>,
    pub submitted: Timestamp,
}

/// Most groups named in a message.
const MAX_NAMED: usize = 8;

impl fmt::Display for Submitter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}", self.user)?;
        let named = &self.groups[..self.groups.len().min(MAX_NAMED)];
        if named.is_empty() {
            return Ok(());
        }
        let more = if named.len() < self.groups.len() {
            ", …"
        } else {
            ""
        };
        write!(f, " (groups {}{more})", named.join(", "))
    }
}

/// Result of one rule.
enum RuleResult {
    Nothing,
    Path(String),
    Wrong(String),
}

impl<'a> Rules<'a> {
    pub fn new(queues: &'a Queues) -> Self {
        Self(queues.placement.iter().map(Compiled::new).collect())
    }

    pub fn place(
        &self,
        tree: &mut Tree,
        dims: &ResourceTypes,
        submitter: Submitter,
    ) -> Result<usize, Refusal> {
        let mut last = Refusal::new(Reason::NoClass, "no queue is named".to_owned());
        let provided = Rule {
            by: By::Provided,
            create: false,
            parent: None,
            filter: None,
        };
        let alone = [Compiled::new(&provided)];
        let rules = if self.0.is_empty() {
            &alone
        } else {
            &self.0[..]
        };
        for rule in rules {
            match apply_rule(rule, tree, submitter) {
                RuleResult::Nothing => {}
                RuleResult::Wrong(detail) => {
                    return Err(Refusal::new(Reason::UnknownClass, detail));
                }
                RuleResult::Path(path) => {
                    match check_target(tree, &path, rule.rule.create, submitter) {
                        Ok(()) => {
                            return tree.grow(dims, &path).ok_or_else(|| {
                                Refusal::new(Reason::UnknownClass, format!("no queue {path}"))
                            });
                        }
                        Err(refusal) => last = refusal,
                    }
                }
            }
        }
        match tree.find(DEFAULT) {
            Some(default) if check_target(tree, DEFAULT, false, submitter).is_ok() => Ok(default),
            _ => Err(last),
        }
    }
}

fn apply_rule(compiled: &Compiled, tree: &Tree, submitter: Submitter) -> RuleResult {
    if !compiled.applies_to(submitter) {
        return RuleResult::Nothing;
    }
    let name = match &compiled.rule.by {
        By::Provided => submitter.queued.and_then(|queued| queued.queue.as_deref()),
        By::User => Some(submitter.user),
        By::Fixed(value) => Some(value.as_str()),
        By::Tag(tag) => submitter
            .queued
            .and_then(|it| it.tags.get(tag))
            .map(String::as_str),
    };
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return RuleResult::Nothing;
    };
    let name = name.to_lowercase();
    let qualified = name == "root" || name.starts_with("root.");
    let fixed = matches!(compiled.rule.by, By::Fixed(_));
    // A user name is never a path.
    if qualified && compiled.rule.by != By::User {
        return named(name);
    }
    // A generated name is a single path segment.
    let name = if fixed {
        name
    } else {
        name.replace('.', "_dot_")
    };
    let above = match &compiled.parent {
        None => "root".to_owned(),
        Some(parent) => match apply_rule(parent, tree, submitter) {
            RuleResult::Path(path) => {
                let (at, there) = tree.nearest(&path);
                if tree.entries[at].leaf || !(there || parent.rule.create) {
                    return RuleResult::Nothing;
                }
                path
            }
            other => return other,
        },
    };
    named(format!("{above}.{name}"))
}

fn named(path: String) -> RuleResult {
    let fits = |name: &str| {
        (1..=NAME_CHARACTERS).contains(&name.len())
            && name
                .chars()
                .all(|it| it.is_ascii_alphanumeric() || "_:#/@-".contains(it))
    };
    if path.split('.').all(fits) {
        return RuleResult::Path(path);
    }
    RuleResult::Wrong(format!("{path:?} cannot be the name of a queue"))
}

/// Checks whether the application may be placed there.
fn check_target(
    tree: &Tree,
    path: &str,
    create: bool,
    submitter: Submitter,
) -> Result<(), Refusal> {
    let (at, there) = tree.nearest(path);
    let queue_state = &tree.entries[at];
    if !there && (!create || queue_state.leaf) {
        let detail = format!(
            "there is no queue {path}; the nearest is {}",
            queue_state.path
        );
        return Err(Refusal::new(Reason::UnknownClass, detail));
    }
    if there && !queue_state.leaf {
        let below: Vec<&str> = queue_state
            .children
            .keys()
            .take(8)
            .map(String::as_str)
            .collect();
        let below = below.join(", ");
        let detail = format!("queue {path} takes no applications; below it are {below}");
        return Err(Refusal::new(Reason::UnknownClass, detail));
    }
    // Applications that were there before draining may keep waiting.
    let closed = |above: usize| {
        let queue_state = &tree.entries[above];
        let since = queue_state.config.and_then(|queue| queue.drained_at);
        queue_state.draining && since.is_none_or(|since| submitter.submitted >= since)
    };
    if tree.path(at).any(closed) {
        let detail = format!("queue {path} is draining: it takes no new applications");
        return Err(Refusal::new(Reason::UnknownClass, detail));
    }
    let admits = |above: usize| {
        let config = tree.entries[above].config;
        config.is_some_and(|queue| {
            queue.submit.admits(submitter.user, submitter.groups)
                || queue.admin.admits(submitter.user, submitter.groups)
        })
    };
    if tree.path(at).any(admits) {
        return Ok(());
    }
    let detail = format!("{submitter} may not submit to queue {path}");
    Err(Refusal::new(Reason::NotAuthorised, detail))
}

/// Applies the tags of an application to the queue created for it.
pub(crate) fn apply_tags(tree: &mut Tree, dims: &ResourceTypes, queue: usize, queued: &Queued) {
    let read = |tag: &str| {
        let text = queued.tags.get(tag)?;
        let value: Value = serde_json::from_str(text).ok()?;
        let (amounts, wrong) = amounts(&value);
        wrong.is_empty().then(|| dims.sparse(&amounts))
    };
    if queue == ROOT || tree.entries[queue].config.is_some() {
        return;
    }
    let queue_state = &mut tree.entries[queue];
    if let Some(max) = read("namespace.resourcequota") {
        queue_state.max = max;
    }
    if let Some(guaranteed) = read("namespace.resourceguaranteed") {
        queue_state.guaranteed = guaranteed;
    }
    let most = queued.tags.get("namespace.resourcemaxapps");
    if let Some(most) = most.and_then(|most| most.parse().ok()) {
        queue_state.max_applications = Some(most);
    }
}
