//! Checks that a migration only expands the schema. Then the previous version of the program works
//! with the new tables, and a rollback is possible. A contraction, such as a removed column,
//! belongs in a later version (A17).

use std::collections::BTreeSet;

/// Returns the contractions in a migration. The list is empty if the migration only expands. The
/// check matches words and does not parse SQL, so unknown statements pass.
pub fn contractions(sql: &str) -> Vec<String> {
    let statements = strip_comments_and_quotes(sql);
    let created = created_names(sql);
    statements
        .split(';')
        .flat_map(|statement| {
            let words: Vec<&str> = statement.split_whitespace().collect();
            // The previous version does not use tables that this migration creates.
            let is_in_use = target_name(&words).is_none_or(|it| !created.contains(it));
            if is_in_use {
                statement_contractions(&words)
            } else {
                Vec::new()
            }
        })
        .collect()
}

/// Returns the tables and functions that this migration creates, also in quoted statements that it
/// executes (`execute 'create function …'`).
fn created_names(sql: &str) -> BTreeSet<String> {
    let text = sql.to_lowercase().replace('(', " ");
    let mut words = text.split_whitespace().peekable();
    let mut created = BTreeSet::new();
    while let Some(word) = words.next() {
        let is_create = word.trim_start_matches('\'') == "create";
        if is_create
            && words
                .next_if(|it| ["table", "function"].contains(it))
                .is_some()
        {
            let name = words.find(|it| !["if", "not", "exists"].contains(it));
            created.extend(name.map(str::to_owned));
        }
    }
    created
}

/// Returns the table or function that a statement changes. `None` for other statements.
fn target_name<'a>(words: &[&'a str]) -> Option<&'a str> {
    let preceding_keyword = match *words.first()? {
        "alter" => "table",
        "delete" => "from",
        "revoke" => "on",
        _ => return None,
    };
    let index = words.iter().position(|it| *it == preceding_keyword)?;
    let keywords = ["if", "exists", "only", "table", "function"];
    words[index + 1..]
        .iter()
        .find(|it| !keywords.contains(it))
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
        let describe = |what: &str| format!("{what} in {table}");
        if action.contains(&"rename") {
            found.push(describe("rename"));
        } else if action.contains(&"drop") && !loosens_column(&action) {
            found.push(describe("drop"));
        } else if action.windows(2).any(|it| it == ["set", "not"]) {
            found.push(describe("set not null"));
        } else if action.contains(&"alter") && action.contains(&"type") {
            found.push(describe("change of type"));
        } else if is_column_without_default(&action) {
            found.push(describe("new column that is not null and has no default"));
        } else if action.contains(&"add") && adds_constraint(&action) {
            found.push(describe("new constraint"));
        }
    }
    found
}

/// Returns whether the action allows more values in a column, as `drop not null` does.
fn loosens_column(action: &[&str]) -> bool {
    action.windows(2).any(|it| it == ["drop", "not"])
}

fn is_column_without_default(action: &[&str]) -> bool {
    let has = |word| action.contains(&word);
    let adds = has("add") && !has("constraint");
    let not_null = action.windows(2).any(|it| it == ["not", "null"]);
    adds && not_null && !has("default") && !has("generated")
}

/// Returns whether the action adds a constraint. A constraint on a column of the same statement
/// does not affect the previous version.
fn adds_constraint(action: &[&str]) -> bool {
    let index = action.iter().position(|it| *it == "add");
    let next = index.and_then(|index| action.get(index + 1)).copied();
    matches!(
        next,
        Some("constraint" | "check" | "unique" | "primary" | "foreign" | "exclude")
    )
}

/// Splits the actions of an `alter table` at the commas outside brackets.
fn split_actions(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_i32, 0, Vec::new());
    for (index, letter) in text.char_indices() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Returns the text in lower case, without comments and without quoted text.
fn strip_comments_and_quotes(sql: &str) -> String {
    let lines = sql
        .lines()
        .map(|line| line.split("--").next().unwrap_or(""));
    let text = lines.collect::<Vec<_>>().join(" ").to_lowercase();
    // Every second part is between quotes. An escaped quote (`''`) only adds an empty part.
    let parts = text.split('\'').enumerate();
    let unquoted = parts
        .filter(|(index, _)| index % 2 == 0)
        .map(|(_, part)| part);
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
