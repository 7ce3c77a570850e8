//! Finds the pool of a node (R-2.3). The first match wins:
//!
//! 1. the first pool in the order of definition with a matching pattern, a regular expression that
//!    matches the whole full name, short name or address;
//! 2. a pool that lists the node;
//! 3. the pool that the agent of the node names, if the policy allows that;
//! 4. the first root pool.
//!
//! Names are compared with and without domain.

use std::collections::BTreeMap;
use std::net::IpAddr;

use hayward_rm_scheduler_api::policy::Policy;
use regex::{Regex, RegexBuilder};

use crate::definition_order;

/// Maximum number of bytes of a pattern as written.
pub(crate) const MAX_PATTERN_BYTES: usize = 1_000;
/// Maximum number of bytes of a compiled pattern. It also bounds the time of a match, which is
/// proportional to the length of the name.
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// Maximum depth of nested groups in a pattern, because the parser is recursive.
const MAX_NESTING: u32 = 50;
/// Pool that node-status reports for a node if its agent names none.
const UNDECLARED: &str = "default";

/// Names of a node, and the pool that its agent names.
#[derive(Debug, Clone, Copy, Default)]
pub struct Identity<'a> {
    pub name: &'a str,
    pub address: Option<&'a str>,
    /// Pool that the agent of the node names.
    pub declared: Option<&'a str>,
}

/// Lookup of the pool of a node.
#[derive(Debug, Clone, Default)]
pub struct NodePools {
    domain: Option<String>,
    /// Compiled patterns with their pools, in the order of definition.
    patterns: Vec<(Regex, String)>,
    /// Pools by listed name with a domain, and by listed address.
    by_full_name: BTreeMap<String, String>,
    /// Pools by listed name without a domain.
    by_bare_name: BTreeMap<String, String>,
    /// Pools by the short form of a listed name with a domain.
    by_short_name: BTreeMap<String, String>,
    /// Pools that an agent may name.
    declared: Vec<String>,
    /// Pool of a node that matches no other pool.
    first_root: Option<String>,
}

impl NodePools {
    /// Creates the lookup for a policy without faults. A faulty entry is skipped.
    pub fn new(policy: &Policy) -> Self {
        let mut node_pools = Self {
            domain: domain(policy).map(str::to_owned),
            ..Self::default()
        };
        for (name, pool) in definition_order::ordered_pools(policy) {
            if let Some(Ok(pattern)) = pool.pattern.as_deref().map(compile_pattern) {
                node_pools.patterns.push((pattern, name.to_owned()));
            }
            for node in &pool.nodes {
                node_pools.add_node(node, name);
            }
            if pool.declared && name != UNDECLARED {
                node_pools.declared.push(name.to_owned());
            }
            if pool.parent.is_none() && node_pools.first_root.is_none() {
                node_pools.first_root = Some(name.to_owned());
            }
        }
        node_pools
    }

    fn add_node(&mut self, node: &str, pool: &str) {
        let full_name = with_domain(node, self.domain.as_deref());
        let insert = |map: &mut BTreeMap<String, String>, key: &str| {
            map.entry(key.to_owned()).or_insert_with(|| pool.to_owned());
        };
        match short_name(&full_name) {
            Some(short) => {
                insert(&mut self.by_short_name, short);
                insert(&mut self.by_full_name, &full_name);
            }
            None if is_address(&full_name) => insert(&mut self.by_full_name, &full_name),
            None => insert(&mut self.by_bare_name, &full_name),
        }
    }

    /// Returns the pool of a node, or `None` only if there is no root pool.
    pub fn pool_of(&self, node: Identity<'_>) -> Option<&str> {
        self.find_by_pattern(node)
            .or_else(|| self.find_by_list(node))
            .or_else(|| {
                let declared = node.declared?;
                let known = self.declared.iter().find(|pool| *pool == declared);
                known.map(String::as_str)
            })
            .or(self.first_root.as_deref())
    }

    fn find_by_pattern(&self, node: Identity<'_>) -> Option<&str> {
        let full_name = with_domain(node.name, self.domain.as_deref());
        let found = self.patterns.iter().find(|(pattern, _)| {
            pattern.is_match(&full_name)
                || pattern.is_match(node.name)
                || short_name(&full_name).is_some_and(|short| pattern.is_match(short))
                || node
                    .address
                    .is_some_and(|address| pattern.is_match(address))
        });
        found.map(|(_, pool)| pool.as_str())
    }

    fn find_by_list(&self, node: Identity<'_>) -> Option<&str> {
        let full_name = with_domain(node.name, self.domain.as_deref());
        let found = match short_name(&full_name) {
            Some(short) => self
                .by_full_name
                .get(&full_name)
                .or_else(|| self.by_bare_name.get(short)),
            None => self
                .by_bare_name
                .get(&full_name)
                .or_else(|| self.by_short_name.get(&full_name)),
        };
        let address = || self.by_full_name.get(node.address?);
        found.or_else(address).map(String::as_str)
    }
}

/// Returns the domain that completes names without a domain. The first pool sets it.
pub(crate) fn domain(policy: &Policy) -> Option<&str> {
    let (_, first) = *definition_order::ordered_pools(policy).first()?;
    let domain = first.domain.as_deref()?.trim_start_matches('.');
    (!domain.is_empty()).then_some(domain)
}

fn is_address(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok()
}

/// Returns the name with its domain, if one is known. An address is unchanged.
pub(crate) fn with_domain(name: &str, domain: Option<&str>) -> String {
    match domain {
        Some(domain) if !name.contains('.') && !is_address(name) => format!("{name}.{domain}"),
        _ => name.to_owned(),
    }
}

/// Returns the part of a name before its domain.
pub(crate) fn short_name(name: &str) -> Option<&str> {
    if is_address(name) {
        return None;
    }
    name.split_once('.').map(|(short, _)| short)
}

/// Compiles a pattern that matches whole names only.
pub(crate) fn compile_pattern(pattern: &str) -> Result<Regex, String> {
    if pattern.is_empty() {
        return Err("is empty: say which names it is for, as in \"node-[0-9]+\"".to_owned());
    }
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(format!(
            "is longer than {MAX_PATTERN_BYTES} bytes: list nodes, or make it shorter"
        ));
    }
    let build = |text: &str| {
        RegexBuilder::new(text)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_COMPILED_BYTES)
            .nest_limit(MAX_NESTING)
            .build()
    };
    // The pattern is first compiled alone. A pattern with unbalanced brackets fails there, and
    // would change its meaning inside the added brackets.
    build(pattern)
        .and_then(|_| build(&format!("^(?:{pattern})$")))
        .map_err(|error| {
            let text = error.to_string();
            let last = text
                .lines()
                .last()
                .unwrap_or("")
                .trim_start_matches("error: ");
            format!("is not an expression that can be matched in linear time: {last}")
        })
}

#[cfg(test)]
mod tests {
    use hayward_rm_scheduler_api::policy::Pool;

    use super::*;

    fn node_pools(pools: &[(&str, Pool)]) -> NodePools {
        let mut policy = Policy::default();
        policy.pools.clear();
        for (place, (name, pool)) in (0..).zip(pools) {
            let pool = Pool {
                place: Some(place),
                ..pool.clone()
            };
            policy.pools.insert((*name).to_owned(), pool);
        }
        NodePools::new(&policy)
    }

    fn pool_with_nodes(nodes: &[&str]) -> Pool {
        Pool {
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            ..Pool::default()
        }
    }

    fn pool_with_pattern(pattern: &str) -> Pool {
        Pool {
            pattern: Some(pattern.to_owned()),
            ..Pool::default()
        }
    }

    fn pool_of<'a>(node_pools: &'a NodePools, name: &str) -> &'a str {
        let node = Identity {
            name,
            ..Identity::default()
        };
        node_pools.pool_of(node).unwrap()
    }

    #[test]
    fn patterns_precede_lists_and_lists_precede_the_first_pool() {
        let node_pools = node_pools(&[
            ("rest", Pool::default()),
            ("late", pool_with_nodes(&["n7"])),
            ("wide", pool_with_pattern("n[0-9]")),
            ("narrow", pool_with_pattern("n7")),
        ]);
        assert_eq!(
            pool_of(&node_pools, "n7"),
            "wide",
            "the first matching pattern wins"
        );
        assert_eq!(
            pool_of(&node_pools, "n77"),
            "rest",
            "a part of a name is no match"
        );
        assert_eq!(pool_of(&node_pools, "other"), "rest");
    }

    #[test]
    fn a_pattern_is_matched_with_full_name_short_name_and_address() {
        let node_pools = node_pools(&[
            ("rest", Pool::default()),
            ("full", pool_with_pattern(r".*\.east\.example")),
            ("short", pool_with_pattern("gpu-[0-9]+")),
            ("near", pool_with_pattern(r"10\.0\.1\.[0-9]+")),
        ]);
        assert_eq!(pool_of(&node_pools, "n1.east.example"), "full");
        assert_eq!(pool_of(&node_pools, "gpu-1.west.example"), "short");
        let node = |address| Identity {
            name: "n1",
            address: Some(address),
            declared: None,
        };
        assert_eq!(node_pools.pool_of(node("10.0.1.9")), Some("near"));
        assert_eq!(node_pools.pool_of(node("10.0.2.9")), Some("rest"));
    }

    #[test]
    fn names_are_compared_with_and_without_domain() {
        let node_pools = node_pools(&[
            ("rest", Pool::default()),
            ("a", pool_with_nodes(&["n1", "n2.east.example", "10.0.0.3"])),
        ]);
        assert_eq!(pool_of(&node_pools, "n1.east.example"), "a");
        assert_eq!(pool_of(&node_pools, "n2"), "a");
        assert_eq!(pool_of(&node_pools, "n2.west.example"), "rest");
        let node = Identity {
            name: "n3",
            address: Some("10.0.0.3"),
            declared: None,
        };
        assert_eq!(node_pools.pool_of(node), Some("a"));
        assert_eq!(
            pool_of(&node_pools, "10"),
            "rest",
            "an address has no short form"
        );
    }

    #[test]
    fn the_domain_of_the_first_pool_completes_names() {
        let first = Pool {
            domain: Some("east.example".to_owned()),
            ..Pool::default()
        };
        let node_pools = node_pools(&[("rest", first), ("a", pool_with_nodes(&["n1"]))]);
        assert_eq!(pool_of(&node_pools, "n1"), "a");
        assert_eq!(pool_of(&node_pools, "n1.east.example"), "a");
        assert_eq!(pool_of(&node_pools, "n1.west.example"), "rest");
    }

    #[test]
    fn an_agent_may_name_a_pool_that_allows_it() {
        let closed = Pool {
            declared: false,
            ..Pool::default()
        };
        let node_pools = node_pools(&[
            ("rest", Pool::default()),
            ("open", Pool::default()),
            ("closed", closed),
        ]);
        let node = |declared| Identity {
            name: "n1",
            address: None,
            declared: Some(declared),
        };
        assert_eq!(node_pools.pool_of(node("open")), Some("open"));
        assert_eq!(node_pools.pool_of(node("closed")), Some("rest"));
        assert_eq!(node_pools.pool_of(node("nowhere")), Some("rest"));
    }

    #[test]
    fn patterns_have_bounded_cost() {
        assert!(compile_pattern("").is_err());
        assert!(compile_pattern(&"a".repeat(MAX_PATTERN_BYTES + 1)).is_err());
        assert!(compile_pattern("(((a{1000}){1000}){1000})").is_err());
        assert!(
            compile_pattern("a)|(b").is_err(),
            "the brackets of a pattern must be balanced"
        );
        assert!(
            compile_pattern("(?=a)")
                .unwrap_err()
                .contains("linear time")
        );
        assert!(compile_pattern("a|b").unwrap().is_match("b"));
        assert!(!compile_pattern("a|b").unwrap().is_match("bb"));
        assert!(
            compile_pattern(r"(a*)*b")
                .unwrap()
                .is_match(&("a".repeat(10_000) + "b"))
        );
    }
}
