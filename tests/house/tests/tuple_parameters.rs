//! No parameter of a function is a tuple pattern. A struct with named fields is used instead, or
//! several parameters.

use hayward_tests_house::debt::{Finding, assert_within_debt};
use hayward_tests_house::source::{Source, sources};
use syn::visit::{self, Visit};

/// Functions with a tuple pattern among their parameters.
#[derive(Default)]
struct TupleParameters {
    found: Vec<(usize, String)>,
}

impl<'ast> Visit<'ast> for TupleParameters {
    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let has_tuple = signature.inputs.iter().any(|input| match input {
            syn::FnArg::Typed(input) => matches!(*input.pat, syn::Pat::Tuple(_)),
            syn::FnArg::Receiver(_) => false,
        });
        if has_tuple {
            let line = signature.fn_token.span.start().line;
            self.found.push((line, signature.ident.to_string()));
        }
        visit::visit_signature(self, signature);
    }
}

fn find_tuple_parameters(file: &syn::File) -> Vec<(usize, String)> {
    let mut visitor = TupleParameters::default();
    visitor.visit_file(file);
    visitor.found
}

#[test]
fn no_parameter_is_a_tuple_pattern() {
    let mut found = Vec::new();
    // Parsing is slow, so files without any tuple before a colon are skipped.
    let may_have_tuple = |source: &&Source| source.text.contains("): ");
    for source in sources().iter().filter(may_have_tuple) {
        let functions = find_tuple_parameters(&source.syntax()).into_iter();
        found.extend(functions.map(|(line, name)| Finding {
            package: source.package.clone(),
            text: format!("{}: {name}", source.location(line)),
        }));
    }
    assert_within_debt(
        "tuple-parameters",
        "a parameter is a struct with named fields, or several parameters",
        found,
    );
}

#[test]
fn tuple_patterns_are_found() {
    let text =
        "fn a((x, y): (u8, u8)) {}\nfn b(p: (u8, u8)) {}\nimpl C { fn d(&self, (e, _): E) {} }";
    let file = syn::parse_file(text).expect("the example is Rust");
    let found: Vec<String> = find_tuple_parameters(&file)
        .into_iter()
        .map(|(_, name)| name)
        .collect();
    assert_eq!(found, ["a", "d"]);
}
