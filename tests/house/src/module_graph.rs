//! The graph of dependencies between the modules directly below the root of a crate, and its
//! cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::Package;
use crate::source::{Source, sources, test_modules};

/// Modules that each module uses. Tests and the root of the crate are left out.
pub type ModuleGraph = BTreeMap<String, BTreeSet<String>>;

/// Returns the module graph of the library of a crate, or of its program if it has no library.
///
/// # Panics
/// If a file of the crate is not valid Rust.
pub fn module_graph(package: &Package) -> ModuleGraph {
    let folder = Path::new(&package.folder).join("src");
    let test_files = test_modules();
    let files = sources().iter().filter(|source| {
        source.path.starts_with(&folder)
            && !source.is_test()
            && !is_in_test_module(source, &test_files)
    });
    let files: Vec<(Vec<String>, &Source)> = files
        .filter_map(|source| {
            Some((
                module_path(source.path.strip_prefix(&folder).ok()?)?,
                source,
            ))
        })
        .collect();
    let mut graph: ModuleGraph = files
        .iter()
        .map(|(path, _)| (path[0].clone(), BTreeSet::new()))
        .collect();
    let names: BTreeSet<String> = graph.keys().cloned().collect();
    for (path, source) in files {
        let mut uses = UseCollector {
            names: &names,
            path,
            found: BTreeSet::new(),
        };
        // The first segment is the module below the root, which the whole file belongs to.
        let own_module = uses.path[0].clone();
        uses.visit_file(&source.syntax());
        uses.found.remove(&own_module);
        graph.entry(own_module).or_default().extend(uses.found);
    }
    graph
}

/// Returns whether a file is a module for tests, or in the folder of such a module.
fn is_in_test_module(source: &Source, test_files: &BTreeSet<std::path::PathBuf>) -> bool {
    let is_below = |module: &std::path::PathBuf| source.path.starts_with(module.with_extension(""));
    test_files.contains(&source.path) || test_files.iter().any(is_below)
}

/// Returns the path of the module in a file: `ledger`, `keep` for `ledger/keep.rs`. Returns `None`
/// for the root of a crate and for programs in `bin`.
fn module_path(file: &Path) -> Option<Vec<String>> {
    let path: Vec<String> = file
        .with_extension("")
        .components()
        .filter_map(|part| match part {
            Component::Normal(part) => Some(part.to_string_lossy().into_owned()),
            _ => None,
        })
        .collect();
    let is_root = path.len() == 1 && (path[0] == "lib" || path[0] == "main");
    let is_program = path.first().is_some_and(|first| first == "bin");
    (!is_root && !is_program).then_some(path)
}

/// Collects the modules that one file uses.
struct UseCollector<'a> {
    /// Names of all modules below the root.
    names: &'a BTreeSet<String>,
    /// Path of the current module from the root.
    path: Vec<String>,
    found: BTreeSet<String>,
}

impl UseCollector<'_> {
    /// Adds a path. A path counts only if it begins with `crate` or leads to the root by `super`.
    fn add(&mut self, segments: &[String]) {
        let mut depth = self.path.len();
        for (index, segment) in segments.iter().enumerate() {
            match segment.as_str() {
                "crate" if index == 0 => depth = 0,
                "self" if index == 0 => {}
                "super" => depth = depth.saturating_sub(1),
                _ if index == 0 || depth > 0 => return,
                name => {
                    if self.names.contains(name) {
                        self.found.insert(name.to_owned());
                    }
                    return;
                }
            }
        }
    }

    fn add_tree(&mut self, prefix: &[String], tree: &syn::UseTree) {
        let extend = |name: &syn::Ident| {
            let mut path = prefix.to_vec();
            path.push(name.to_string());
            path
        };
        match tree {
            syn::UseTree::Path(path) => self.add_tree(&extend(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.add(&extend(&name.ident)),
            syn::UseTree::Rename(name) => self.add(&extend(&name.ident)),
            syn::UseTree::Glob(_) => {}
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_tree(prefix, tree);
                }
            }
        }
    }

    /// Adds the paths in a macro, which is not parsed. A path is the tokens `crate`, `:`, `:` and a
    /// name.
    fn add_tokens(&mut self, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.add_tokens(group.stream()),
                TokenTree::Ident(word) if word == "crate" => {
                    if let Some(TokenTree::Ident(name)) = tokens.get(index + 3) {
                        self.add(&["crate".to_owned(), name.to_string()]);
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for UseCollector<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !has_test_attribute(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.path.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.path.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if segments.len() > 1 {
            self.add(&segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.add_tokens(call.tokens.clone());
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether the attributes contain `#[cfg(test)]` or `#[test]`.
pub fn has_test_attribute(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg_test = attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|word| word == "test");
        is_cfg_test || attribute.path().is_ident("test")
    })
}

/// Returns modules that use each other in a cycle, one list for each cycle.
pub fn find_cycles(graph: &ModuleGraph) -> Vec<Vec<String>> {
    let reachable: BTreeMap<&String, BTreeSet<&String>> = graph
        .keys()
        .map(|from| (from, find_reachable(graph, from)))
        .collect();
    let mut found = BTreeSet::new();
    for (from, targets) in &reachable {
        let mutual = targets
            .iter()
            .filter(|target| reachable[**target].contains(from));
        let cycle: Vec<String> = mutual.map(|name| (*name).clone()).collect();
        if cycle.len() > 1 {
            found.insert(cycle);
        }
    }
    found.into_iter().collect()
}

fn find_reachable<'a>(graph: &'a ModuleGraph, from: &String) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut pending = vec![from];
    while let Some(next) = pending.pop() {
        for target in graph.get(next).into_iter().flatten() {
            if found.insert(target) {
                pending.push(target);
            }
        }
    }
    found
}

#[test]
fn modules_that_use_each_other_are_one_cycle() {
    let edges = |from: &str, to: &[&str]| {
        let targets = to.iter().map(|target| (*target).to_owned());
        (from.to_owned(), targets.collect::<BTreeSet<String>>())
    };
    let graph = ModuleGraph::from([
        edges("a", &["b"]),
        edges("b", &["c"]),
        edges("c", &["b", "d"]),
        edges("d", &[]),
    ]);
    assert_eq!(find_cycles(&graph), [["b", "c"]]);
}

#[test]
fn paths_are_followed_to_the_root() {
    let names = BTreeSet::from(["store".to_owned(), "model".to_owned()]);
    let text = "use crate::{model::Row, other};\nuse super::super::store;\nuse super::near;\n\
                #[cfg(test)]\nmod tests { use crate::model; }\n";
    let mut uses = UseCollector {
        names: &names,
        path: vec!["ledger".to_owned(), "keep".to_owned()],
        found: BTreeSet::new(),
    };
    uses.visit_file(&syn::parse_file(text).expect("the example is Rust"));
    assert_eq!(uses.found, names);
}
