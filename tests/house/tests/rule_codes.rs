//! Codes of rules resolve in `docs/spec`. A comment has at most one, in parentheses, and no name of
//! a test begins with one.

use std::path::Path;

use hayward_tests_house::debt::{Finding, assert_within_debt};
use hayward_tests_house::rule_codes::{Codes, begins_with_code, defined_codes, is_page};
use hayward_tests_house::source::{has_extension, sources};
use hayward_tests_house::{assert_none, files, read};
use regex::Regex;
use syn::visit::{self, Visit};

#[test]
fn a_code_has_one_definition() {
    let duplicates = defined_codes()
        .into_iter()
        .filter(|(_, pages)| pages.len() > 1);
    let found = duplicates.map(|(code, pages)| format!("{code}: {}", pages.join(", ")));
    assert_none(
        "a code has one owner; cite the other one as a section of its page, in words",
        &found.collect::<Vec<_>>(),
    );
}

#[test]
fn codes_in_comments_resolve() {
    let codes = Codes::from_pages();
    let mut found = Vec::new();
    for source in sources() {
        for comment in source.comments() {
            let unknown = codes.find_in(&comment.text).into_iter();
            found.extend(
                unknown
                    .filter(|code| !codes.resolves(code))
                    .map(|code| Finding {
                        package: source.package.clone(),
                        text: format!("{}: {code}", source.location(comment.line)),
                    }),
            );
        }
    }
    assert_within_debt(
        "unknown-codes",
        "no page of docs/spec defines the code: correct it, or say it in words",
        found,
    );
}

#[test]
fn codes_in_documents_resolve() {
    let codes = Codes::from_pages();
    let mut found = Vec::new();
    let documents = files().into_iter().filter(|path| has_extension(path, "md"));
    for path in documents.filter(|path| !is_page(path)) {
        let text = read(&path).unwrap_or_default();
        for (index, line) in text.lines().enumerate() {
            let unknown = codes.find_in(line).into_iter();
            let unknown = unknown.filter(|code| !codes.resolves(code));
            found.extend(unknown.map(|code| format!("{}:{}: {code}", path.display(), index + 1)));
        }
    }
    assert_none(
        "no page of docs/spec defines the code: correct it, or say it in words",
        &found,
    );
}

#[test]
fn a_comment_has_at_most_one_code() {
    let codes = Codes::from_pages();
    let mut found = Vec::new();
    for source in sources() {
        for comment in source.comments() {
            let cited = codes.find_in(&comment.text);
            if cited.len() > 1 {
                found.push(Finding {
                    package: source.package.clone(),
                    text: format!("{}: {}", source.location(comment.line), cited.join(" ")),
                });
            }
        }
    }
    assert_within_debt(
        "several-codes",
        "a comment has at most one code, last, in parentheses: keep the one that says most",
        found,
    );
}

#[test]
fn codes_are_in_parentheses() {
    let codes = Codes::from_pages();
    let mut found = Vec::new();
    for source in sources() {
        for comment in source.comments() {
            let cited = codes.find_in(&comment.text);
            let unbracketed = cited
                .into_iter()
                .filter(|code| !comment.text.contains(&format!("({code})")));
            found.extend(unbracketed.map(|code| Finding {
                package: source.package.clone(),
                text: format!("{}: {code}", source.location(comment.line)),
            }));
        }
    }
    assert_within_debt(
        "bare-codes",
        "a code comes after a sentence that is true without it, in parentheses: \"… (I13)\"",
        found,
    );
}

#[test]
fn sections_are_cited_in_words() {
    let number = Regex::new(r"\b[Ss]ections? \d|\(\d{1,2}\.\d{1,2}(-\d+)?[,)]")
        .expect("a regular expression");
    let mut found = Vec::new();
    for source in sources() {
        for comment in source.comments() {
            let cited = number.find(&comment.text);
            found.extend(cited.map(|cited| Finding {
                package: source.package.clone(),
                text: format!("{}: {}", source.location(comment.line), cited.as_str()),
            }));
        }
    }
    assert_within_debt(
        "section-numbers",
        "name the page of docs/spec and its section in words, or leave the reference out",
        found,
    );
}

/// Names of all functions of a file, also of those in macros such as `proptest!`.
#[derive(Default)]
struct Functions {
    names: Vec<String>,
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.names.push(function.sig.ident.to_string());
        visit::visit_item_fn(self, function);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let mut after_fn = false;
        for token in call.tokens.clone() {
            let name = match token {
                proc_macro2::TokenTree::Ident(name) => name.to_string(),
                _ => String::new(),
            };
            if after_fn && !name.is_empty() {
                self.names.push(name.clone());
            }
            after_fn = name == "fn";
        }
    }
}

#[test]
fn function_names_begin_with_their_subject() {
    const OPENINGS: [&str; 7] = ["what", "who", "whoever", "whose", "whom", "of", "nobody"];
    let mut found = Vec::new();
    for source in sources() {
        let mut functions = Functions::default();
        functions.visit_file(&source.syntax());
        for name in functions.names {
            let opening = name.split('_').next().unwrap_or_default();
            let has_forbidden_opening = OPENINGS.contains(&opening) && name.contains('_');
            if has_forbidden_opening || begins_with_code(&name) {
                found.push(Finding {
                    package: source.package.clone(),
                    text: format!("{}: {name}", source.path.display()),
                });
            }
        }
    }
    assert_within_debt(
        "function-names",
        "a name is subject, condition, result; its code goes to the end of the comment above it",
        found,
    );
}

#[test]
fn every_rule_of_the_map_is_in_the_specification() {
    let codes = Codes::from_pages();
    let map = read(Path::new("docs/rules.md")).expect("the map of rules");
    let cells = map.lines().filter_map(|line| line.strip_prefix("| "));
    let rules = cells.filter_map(|line| line.split(" |").next());
    let rules = rules.filter(|rule| rule.starts_with(|c: char| c.is_ascii_uppercase()));
    let undefined = rules.filter(|rule| *rule != "Rule" && !codes.resolves(rule));
    assert_none(
        "docs/rules.md maps rules that docs/spec defines",
        &undefined.map(str::to_owned).collect::<Vec<_>>(),
    );
}
