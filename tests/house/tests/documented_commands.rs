//! The commands in the documents exist: recipes of the justfile, subcommands of the program, and
//! routes for `curl` with their methods.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hayward_tests_house::{assert_none, files, markdown, pages, read};
use serde_json::Value;

/// Ports of `hayward up` and of the compose stack.
const PORTS: [(&str, &str); 5] = [
    ("7400", "job-converter"),
    ("7401", "rm-scheduler"),
    ("7402", "container-manager"),
    ("7403", "node-status"),
    ("7404", "blocklist"),
];
/// Routes that every service answers in addition to its own API.
const COMMON_ROUTES: [&str; 5] = [
    "/livez",
    "/readyz",
    "/v1/status",
    "/v1/openapi.json",
    "/docs",
];

/// Returns the commands of all pages, each with its page.
fn all_commands() -> Vec<(String, String)> {
    let commands_of_page = |page: PathBuf| {
        let text = read(&page).unwrap_or_default();
        let name = page.display().to_string();
        let found = commands(&text).into_iter();
        found
            .map(move |command| (name.clone(), command))
            .collect::<Vec<_>>()
    };
    pages().into_iter().flat_map(commands_of_page).collect()
}

/// Returns the commands of a page: lines of fenced blocks, joined where a backslash ends them, and
/// the texts in backquotes. Output in a block does not look like a command and is skipped.
fn commands(text: &str) -> Vec<String> {
    let spans = markdown::code_spans(text).into_iter();
    let mut found: Vec<String> = spans.map(|(_, span)| span).collect();
    let mut fenced = false;
    let mut current = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            current.push_str(line.trim().trim_start_matches("$ ").trim_end_matches('\\'));
            if !line.ends_with('\\') {
                found.push(std::mem::take(&mut current));
            }
        }
    }
    found
}

/// Returns the words after each place where the command calls the program.
fn find_calls<'a>(command: &'a str, program: &str) -> Vec<Vec<&'a str>> {
    let parts = command.split(['|', ';', '&', '(', ')']);
    let words = parts.map(|part| part.split_whitespace().collect::<Vec<_>>());
    let calls = words.filter_map(|words| {
        let variable_count = words.iter().take_while(|word| word.contains('=')).count();
        (words.get(variable_count) == Some(&program)).then(|| words[variable_count + 1..].to_vec())
    });
    calls.collect()
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

#[test]
fn recipes_exist() {
    let text = read(Path::new("justfile")).expect("the repository has a justfile");
    let recipes: BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with([' ', '#', '\t']) && !line.contains(":="))
        .filter_map(|line| line.split_once(':')?.0.split_whitespace().next())
        .collect();
    let mut found = Vec::new();
    for (page, command) in all_commands() {
        for words in find_calls(&command, "just") {
            if let Some(recipe) = words.first().filter(|word| is_name(word))
                && !recipes.contains(recipe)
            {
                found.push(format!("{page}: just {recipe}"));
            }
        }
    }
    assert_none("the justfile has every recipe in the documents", &found);
}

/// Reads the subcommands from the source of the enums that derive them. Calling the program would
/// need a build of the whole workspace.
fn subcommands() -> BTreeSet<String> {
    let source_folder = Path::new("services/hayward/src");
    // The agent's program is part of this one and has no subcommand in clap.
    let mut names = BTreeSet::from(["help".to_owned(), "node-agent".to_owned()]);
    for path in files()
        .into_iter()
        .filter(|path| path.starts_with(source_folder))
    {
        let text = read(&path).unwrap_or_default();
        let mut derives_subcommand = false;
        let mut in_enum = false;
        for line in text.lines() {
            if line.starts_with("#[derive(") {
                derives_subcommand = line.contains("Subcommand");
            } else if line == "}" {
                (derives_subcommand, in_enum) = (false, false);
            } else if derives_subcommand && line.contains("enum ") {
                in_enum = true;
            } else if in_enum {
                names.extend(subcommand_of_variant(line).or_else(|| subcommand_of_attribute(line)));
            }
        }
    }
    names
}

/// Returns the subcommand of a variant: `config-check` for `    ConfigCheck(…),`.
fn subcommand_of_variant(line: &str) -> Option<String> {
    let name = line.strip_prefix("    ")?;
    if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    let name = name.chars().take_while(char::is_ascii_alphanumeric);
    let kebab = name.flat_map(|c| {
        let dash = c.is_ascii_uppercase().then_some('-');
        dash.into_iter()
            .chain(std::iter::once(c.to_ascii_lowercase()))
    });
    Some(kebab.skip(1).collect())
}

/// Returns the subcommand of an attribute: `run-tasks` for `    #[command(name = "run-tasks")]`.
fn subcommand_of_attribute(line: &str) -> Option<String> {
    let value = line
        .strip_prefix("    #[command(")?
        .split_once("name = \"")?
        .1;
    Some(value.split('"').next()?.to_owned())
}

#[test]
fn subcommands_exist() {
    let known = subcommands();
    let mut found = Vec::new();
    for (page, command) in all_commands() {
        let mut called = find_calls(&command, "hayward");
        // `cargo run --release -p hayward -- demo` calls the program too.
        called.extend(
            find_calls(&command, "cargo")
                .into_iter()
                .filter_map(|words| {
                    let runs_hayward = words.contains(&"run") && words.contains(&"hayward");
                    let separator = words.iter().position(|word| *word == "--")?;
                    runs_hayward.then(|| words[separator + 1..].to_vec())
                }),
        );
        for words in called {
            if let Some(name) = words.first().filter(|word| is_name(word))
                && !known.contains(*name)
            {
                found.push(format!("{page}: hayward {name}"));
            }
        }
    }
    assert_none("the program has every subcommand in the documents", &found);
}

/// Returns method, service and path of a request. The service is known from the port, if there is
/// one.
fn parse_request(words: &[&str]) -> Option<(String, Option<&'static str>, String)> {
    let unquoted = |word: &str| word.trim_matches(['"', '\'']).to_owned();
    let url = words
        .iter()
        .map(|word| unquoted(word))
        .find(|word| word.contains("/v1/"))?;
    let (before, after) = url.split_at(url.find("/v1/")?);
    let path = after.split(['?', '"', '\'']).next()?.to_owned();
    let service = PORTS
        .iter()
        .find(|(port, _)| before.ends_with(port))
        .map(|(_, name)| *name);
    let mut method = "GET".to_owned();
    for (index, word) in words.iter().enumerate() {
        match *word {
            "-X" | "--request" | "-sX" => {
                return Some((unquoted(words.get(index + 1)?), service, path));
            }
            "-d" | "--data" | "--json" | "--data-binary" | "--data-raw" => {
                "POST".clone_into(&mut method);
            }
            "-T" | "--upload-file" => "PUT".clone_into(&mut method),
            "-I" | "--head" => "HEAD".clone_into(&mut method),
            option if option.len() > 2 && option.starts_with("-X") => {
                option[2..].clone_into(&mut method);
            }
            _ => {}
        }
    }
    Some((method, service, path))
}

/// Returns whether a route answers a path, like `/v1/jobs/{id}/tasks` for `/v1/jobs/$ID/tasks`.
fn template_matches(template: &str, path: &str) -> bool {
    let template: Vec<&str> = template.split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    let segment_matches =
        |(expected, actual): (&&str, &&str)| expected.starts_with('{') || expected == actual;
    template.len() == path.len() && template.iter().zip(&path).all(segment_matches)
}

fn route_exists(method: &str, service: &str, path: &str) -> bool {
    let text = read(Path::new(&format!("openapi/{service}.json"))).unwrap_or_default();
    let document: Value = serde_json::from_str(&text).unwrap_or_default();
    let mut paths = document["paths"].as_object().into_iter().flatten();
    paths.any(|(template, item)| {
        template_matches(template, path) && item.get(method.to_lowercase()).is_some()
    })
}

#[test]
fn routes_exist() {
    let mut found = Vec::new();
    for (page, command) in all_commands() {
        for words in find_calls(&command, "curl") {
            let Some((method, service, path)) = parse_request(&words) else {
                continue;
            };
            let known = service.map_or_else(
                || {
                    PORTS
                        .iter()
                        .any(|(_, service)| route_exists(&method, service, &path))
                },
                |service| route_exists(&method, service, &path),
            );
            if !known && !COMMON_ROUTES.contains(&path.as_str()) {
                found.push(format!(
                    "{page}: {method} {} {path}",
                    service.unwrap_or("anywhere")
                ));
            }
        }
    }
    assert_none(
        "an API description has every route in the documents",
        &found,
    );
}

#[test]
fn commands_are_read_correctly() {
    let words = [
        "-s",
        "-X",
        "PUT",
        "\"http://127.0.0.1:7404/v1/blocklist/items/$ID?x=1\"",
    ];
    let path = "/v1/blocklist/items/$ID".to_owned();
    assert_eq!(
        parse_request(&words),
        Some(("PUT".to_owned(), Some("blocklist"), path))
    );
    assert!(template_matches(
        "/v1/jobs/{id}/tasks",
        "/v1/jobs/$JOB/tasks"
    ));
    assert!(!template_matches("/v1/jobs/{id}", "/v1/jobs"));
    assert_eq!(
        subcommand_of_variant("    ConfigCheck(Check),").as_deref(),
        Some("config-check")
    );
    assert_eq!(
        subcommand_of_attribute("    #[command(name = \"run-tasks\")]").as_deref(),
        Some("run-tasks")
    );
    assert_eq!(
        find_calls("id=$(hayward submit -- sleep 1)", "hayward").len(),
        1
    );
}
