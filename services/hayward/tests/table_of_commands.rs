//! Tests that the table of commands in the README of this crate follows from the definitions of
//! clap.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use hayward::cli::Cli;

const BEGIN: &str = "<!-- begin of the table of commands: \
    `BLESS=1 cargo test --locked -p hayward --test table_of_commands` writes it -->\n";
const END: &str = "<!-- end of the table of commands -->\n";

fn visible_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    let subcommands = command.get_subcommands();
    subcommands.filter(|it| !it.is_hide_set() && it.get_name() != "help")
}

fn render_table() -> String {
    let mut table = "| Command | Does | Subcommands |\n|---|---|---|\n".to_owned();
    for command in visible_subcommands(&Cli::command()) {
        let name = command.get_name();
        let about = command.get_about().expect("a line of help").to_string();
        let about = about.replace('|', "\\|");
        let subcommands: Vec<String> = visible_subcommands(command)
            .map(|it| format!("`{}`", it.get_name()))
            .collect();
        let subcommands = subcommands.join(", ");
        writeln!(table, "| `{name}` | {about} | {subcommands} |").expect("a string");
    }
    table
}

#[test]
fn the_table_of_commands_follows_from_the_definitions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let page = std::fs::read_to_string(&path).expect("the README");
    let (before, after_begin) = page.split_once(BEGIN).expect("the begin of the table");
    let (written, after) = after_begin.split_once(END).expect("the end of the table");
    let generated = render_table();
    if std::env::var_os("BLESS").is_some() {
        let page = [before, BEGIN, &generated, END, after].concat();
        std::fs::write(&path, page).expect("the README can be written");
        return;
    }
    assert_eq!(
        written, generated,
        "README.md is outdated: run this with BLESS=1"
    );
}
