//! Checks that a migration only expands the schema. Then the previous version works with the new
//! tables, and a rollback is possible. A contraction belongs in a later version (A17).

use std::collections::BTreeSet;

/// Returns the contractions in a migration. The list is empty if the migration only expands. The
/// check matches words and does not parse SQL, so unknown statements pass.
pub fn contractions(sql: &str) -> Vec<String> {
    let statements = bare(sql);
    let own = made(sql);
    statements
        .split(';')
        .flat_map(|statement| {
            let words: Vec<&str> = statement.split_whitespace().collect();
            // The previous version does not use tables that this migration creates.
            let knows = target(&words).is_none_or(|it| !own.contains(it));
            if knows {
                statement_contractions(&words)
            } else {
                Vec::new()
            }
        })
        .collect()
}

/// Returns the tables and functions that this migration creates, also in text that it executes.
fn made(sql: &str) -> BTreeSet<String> {
    let text = sql.to_lowercase().replace('(', " ");
    let mut words = text.split_whitespace().peekable();
    let mut made = BTreeSet::new();
    while let Some(word) = words.next() {
        let makes = word.trim_start_matches('\'') == "create";
        if makes
            && words
                .next_if(|it| ["table", "function"].contains(it))
                .is_some()
        {
            let name = words.find(|it| !["if", "not", "exists"].contains(it));
            made.extend(name.map(str::to_owned));
        }
    }
    made
}

/// Returns the target of a statement.
fn target<'a>(words: &[&'a str]) -> Option<&'a str> {
    let before = match *words.first()? {
        "alter" => "table",
        "delete" => "from",
        "revoke" => "on",
        _ => return None,
    };
    let at = words.iter().position(|it| *it == before)?;
    let noise = ["if", "exists", "only", "table", "function"];
    words[at + 1..]
        .iter()
        .find(|it| !noise.contains(it))
        .copied()
}

fn statement_contractions(words: &[&str]) -> Vec<String> {
    match words {
        // Dropping an index breaks no query.
        ["drop", "index", ..] => Vec::new(),
        ["drop" | "truncate", what, ..] => vec![format!("{} {what}", words[0])],
        ["alter", "table", rest @ ..] => table_contractions(rest),
        ["alter", "type", rest @ ..] if !rest.windows(2).any(|it| it == ["add", "value"]) => {
            vec!["alter type".to_owned()]
        }
        ["revoke", ..] => vec!["revoke".to_owned()],
        ["delete", "from", table, ..] => vec![format!("delete from {table}")],
        _ => Vec::new(),
    }
}

fn table_contractions(words: &[&str]) -> Vec<String> {
    let table = words
        .iter()
        .find(|it| !matches!(**it, "if" | "exists" | "only"));
    let table = table.copied().unwrap_or_default();
    let text = words.join(" ");
    let mut found = Vec::new();
    for action in split_actions(&text) {
        let action: Vec<&str> = action.split_whitespace().collect();
        let finding = |what: &str| format!("{what} in {table}");
        if action.contains(&"rename") {
            found.push(finding("rename"));
        } else if action.contains(&"drop") && !is_loosened(&action) {
            found.push(finding("drop"));
        } else if action.windows(2).any(|it| it == ["set", "not"]) {
            found.push(finding("set not null"));
        } else if action.contains(&"alter") && action.contains(&"type") {
            found.push(finding("change of type"));
        } else if is_column_without_default(&action) {
            found.push(finding("new column that is not null and has no default"));
        } else if action.contains(&"add") && narrows(&action) {
            found.push(finding("new constraint"));
        }
    }
    found
}

/// Returns whether the action loosens a column: `drop not null` allows more values.
fn is_loosened(action: &[&str]) -> bool {
    let pairs = action.windows(2);
    let mut pairs = pairs.filter(|it| it[0] == "drop");
    pairs.any(|it| it[1] == "not")
}

fn is_column_without_default(action: &[&str]) -> bool {
    let has = |word| action.contains(&word);
    let adds = has("add") && !has("constraint");
    let not_null = action.windows(2).any(|it| it == ["not", "null"]);
    adds && not_null && !has("default") && !has("generated")
}

/// Returns whether the action adds a constraint. A constraint on a column of the same statement
/// does not affect the previous version.
fn narrows(action: &[&str]) -> bool {
    let at = action.iter().position(|it| *it == "add");
    let next = at.and_then(|at| action.get(at + 1)).copied();
    matches!(
        next,
        Some("constraint" | "check" | "unique" | "primary" | "foreign" | "exclude")
    )
}

/// Splits at commas outside brackets.
fn split_actions(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0_i32, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// Returns the text in lower case, without comments and without quoted text.
fn bare(sql: &str) -> String {
    let lines = sql
        .lines()
        .map(|line| line.split("--").next().unwrap_or(""));
    let text = lines.collect::<Vec<_>>().join(" ").to_lowercase();
    let quoted = text.split('\'').enumerate();
    let unquoted = quoted.filter(|(at, _)| at % 2 == 0).map(|(_, part)| part);
    unquoted
        .collect::<Vec<_>>()
        .join(" ")
        .replace('(', " ( ")
        .replace(')', " ) ")
}

#[cfg(test)]
mod tests {
    use super::contractions;

    /// The previous version works with the new tables (A17).
    #[test]
    fn an_expansion_is_accepted() {
        for sql in [
            "create table a (b text not null check (b in ('drop', 'rename')));",
            "alter table a add column b bigint not null default 0;",
            "alter table a add column b text; create index c on a (b);",
            "-- drop table a;\nalter table a add column b text not null\n default '';",
            "alter table a add column b json, add column c text[] not null default '{}';",
            "alter table a alter column b drop not null;",
            "drop index c;",
            "update a set b = 1; insert into a values (1);",
            "alter type kind add value 'new';",
            "alter table a add column b text check (b <> '') ;",
            "create table a (b text); alter table a add check (b <> ''); delete from a;",
            "do $$ begin execute 'create function f() returns int as 1'; end $$;\n\
             revoke execute on function f() from public;",
        ] {
            assert_eq!(contractions(sql), Vec::<String>::new(), "{sql}");
        }
    }

    /// A contraction belongs in a later version (A17).
    #[test]
    fn a_removal_or_restriction_is_a_contraction() {
        for (sql, expected) in [
            ("create table a (b text); delete from c;", "delete from c"),
            (
                "create table a (b text); revoke select on c from d;",
                "revoke",
            ),
            ("drop table a;", "drop table"),
            ("truncate a;", "truncate a"),
            ("alter table a drop column b;", "drop in a"),
            (
                "ALTER TABLE a DROP CONSTRAINT b, ADD PRIMARY KEY (c)",
                "drop in a",
            ),
            ("alter table a rename column b to c", "rename in a"),
            (
                "alter table a alter column b type bigint",
                "change of type in a",
            ),
            (
                "alter table a alter column b set data type bigint",
                "change of type in a",
            ),
            ("alter table a alter b set not null", "set not null in a"),
            ("alter table a alter column b drop default", "drop in a"),
            (
                "alter table a add column b text not null",
                "new column that is not null and has no default in a",
            ),
            (
                "alter table only a add constraint c check (b > 0)",
                "new constraint in a",
            ),
            (
                "alter table if exists a add unique (b)",
                "new constraint in a",
            ),
            ("revoke select on a from b", "revoke"),
            ("delete from a where b", "delete from a"),
            ("drop schema a cascade", "drop schema"),
        ] {
            assert_eq!(
                contractions(sql).first().map(String::as_str),
                Some(expected),
                "{sql}"
            );
        }
    }
}
