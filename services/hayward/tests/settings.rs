//! Tests the settings of all programs against their definitions. Each setting has an explanation,
//! and the list of names and the settings page follow from the definitions. One environment serves
//! all programs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::{CommandFactory as _, ValueEnum as _};
use hayward::cli::Cli;
use hayward::commands::fleet::config::{all_settings, program_settings};
use hayward::commands::fleet::run_service::{Program, program_name};
use hayward_service::config::Setting;

/// Suffixes of names, and the word for their unit.
const UNITS: [(&str, &str); 7] = [
    ("_ms", "milliseconds"),
    ("_bytes", "bytes"),
    ("_percent", "percent"),
    ("_milli", "thousandths"),
    ("_days", "days"),
    ("_per_second", "second"),
    ("_per_min", "minute"),
];

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the settings of all programs, each with the name of its program.
fn settings() -> Vec<(&'static str, Setting)> {
    let all = Program::value_variants().iter().flat_map(|program| {
        let settings = program_settings(*program).expect("settings with defaults");
        settings.into_iter().map(|it| (program_name(*program), it))
    });
    all.collect()
}

fn hayward(arguments: &[&str], environment: &[(String, String)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayward"));
    command.args(arguments).env_clear();
    command.envs(environment.iter().cloned());
    command.output().expect("the program can be started")
}

fn to_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compares a generated file with the committed one. `BLESS` in the environment writes it.
fn assert_current(relative: &str, generated: &str) {
    let path = root().join(relative);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, generated).expect("it can be written");
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        committed, generated,
        "{relative} is outdated: run this with BLESS=1"
    );
}

/// Compares the default with a number in the description, as in `Default 5,000: …`. Returns the
/// fault if they differ.
fn wrong_default(setting: &Setting) -> Option<String> {
    let (_, stated) = setting.meaning.split_once("Default ")?;
    let end = stated.find([':', ';', '.', ' ']).unwrap_or(stated.len());
    let (number, after_number) = stated.split_at(end);
    let number = number.trim_end_matches(',').replace(',', "");
    let number: u64 = number.parse().ok()?;
    let factor = if after_number.starts_with(" MiB") {
        1 << 20
    } else {
        1
    };
    let stated = (number * factor).to_string();
    (stated != setting.default && setting.default != "none").then(|| {
        format!(
            "the default is {}, but its description states {stated}",
            setting.default
        )
    })
}

/// Returns what is wrong with the description of a setting. Returns `None` for a good description.
fn find_fault(setting: &Setting) -> Option<String> {
    let meaning = setting.meaning.to_lowercase();
    if meaning.split(' ').count() < 4 || !meaning.ends_with('.') {
        return Some("has no sentence".to_owned());
    }
    let missing_unit = UNITS
        .iter()
        .find(|(ending, unit)| setting.name.ends_with(ending) && !meaning.contains(unit));
    missing_unit
        .map(|(_, unit)| format!("does not name its unit, {unit}"))
        .or_else(|| wrong_default(setting))
}

#[test]
fn every_setting_has_a_description_with_unit_and_default() {
    let all = settings();
    // A smaller number means that some programs were missed.
    assert!(all.len() > 150, "{}", all.len());
    let faults: Vec<String> = all
        .iter()
        .filter_map(|(program, it)| Some(format!("{program}: {} {}", it.name, find_fault(it)?)))
        .collect();
    assert_eq!(faults, Vec::<String>::new());
}

/// Collects the source files of programs, without their tests.
fn collect_sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if path.is_dir() && name != "tests" && name != "target" {
            collect_sources(&path, files);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            files.push(path);
        }
    }
}

/// Finds the names of variables in a text between `before` and one of `after`. A name that ends in
/// `_` is a prefix and is skipped.
fn find_variables(text: &str, before: &str, after: &[char]) -> Vec<String> {
    let variable_name = |part: &str| {
        let end = part.find(|c: char| !c.is_ascii_uppercase() && c != '_')?;
        let (name, remaining) = part.split_at(end);
        let is_complete = !name.is_empty() && !name.ends_with('_') && remaining.starts_with(after);
        is_complete.then(|| format!("HAYWARD_{name}"))
    };
    let before = format!("{before}HAYWARD_");
    text.split(&before)
        .skip(1)
        .filter_map(variable_name)
        .collect()
}

/// Returns variables that are no settings: those of the command line, those that programs read
/// themselves or pass to work, and those of the compose file.
fn other_variables() -> BTreeSet<String> {
    let mut variables_found = BTreeSet::new();
    let mut commands = vec![Cli::command()];
    while let Some(command) = commands.pop() {
        let names = command.get_arguments().filter_map(clap::Arg::get_env);
        let names = names.map(|name| name.to_string_lossy().into_owned());
        variables_found.extend(names.filter(|name| name.starts_with("HAYWARD_")));
        commands.extend(command.get_subcommands().cloned());
    }
    let mut files = Vec::new();
    for folder in ["services", "shared"] {
        collect_sources(&root().join(folder), &mut files);
    }
    let read = |path: &Path| std::fs::read_to_string(path).expect("a text");
    for file in files {
        variables_found.extend(find_variables(&read(&file), "\"", &['"']));
    }
    let compose = read(&root().join("docker-compose.yml"));
    variables_found.extend(find_variables(&compose, "${", &['}', ':', '-']));
    variables_found
}

#[test]
fn names_of_settings_and_variables_follow_from_the_definitions() {
    let all = settings();
    let mut lines: BTreeSet<String> = all
        .iter()
        .map(|(program, it)| format!("setting {} {program}", it.name))
        .collect();
    let setting_variables: BTreeSet<String> = all.iter().map(|(_, it)| it.variable()).collect();
    let is_setting = |name: &String| {
        // The variable with `_FILE` names a file with the value.
        let value = name.strip_suffix("_FILE");
        setting_variables.contains(name) || value.is_some_and(|it| setting_variables.contains(it))
    };
    let other_variables = other_variables()
        .into_iter()
        .filter(|name| !is_setting(name));
    lines.extend(other_variables.map(|name| format!("variable {name}")));
    let lines: Vec<String> = lines.into_iter().collect();
    let generated = lines.join("\n") + "\n";
    assert_current("shared/service/src/config/names.txt", &generated);
}

/// Beginning of the settings page.
const PAGE_HEAD: &str = "# Settings\n\n\
    Every setting of every program, from its definition: this page is made by `BLESS=1 cargo test \
    --locked -p hayward --test settings`, and a test keeps it so. `hayward config explain` says \
    the same, and `hayward run SERVICE --help` that of one service. Each is a flag (`--lease-ms`), \
    a variable (`HAYWARD_LEASE_MS`, or `HAYWARD_NODE_STATUS_LEASE_MS` for one program) and a line \
    of the TOML file (`lease_ms = 5000`); [operations.md](operations.md#settings) has which \
    wins.\n\n\
    | Setting | Default | Programs | Meaning |\n|---|---|---|---|\n";

#[test]
fn the_page_of_settings_follows_from_the_definitions() {
    let mut page = PAGE_HEAD.to_owned();
    for (setting, programs) in all_settings().expect("settings") {
        let default = match setting.default.as_str() {
            "" => "empty".to_owned(),
            "none" => "none".to_owned(),
            text => format!("`{text}`"),
        };
        let meaning = setting.meaning.replace('|', "\\|");
        let programs = programs.join(", ");
        let name = setting.name;
        writeln!(page, "| `{name}` | {default} | {programs} | {meaning} |").expect("a string");
    }
    assert_current("docs/settings.md", &page);
}

#[test]
fn one_environment_serves_all_programs() {
    // Variables of the command line, of work and of the compose file are no settings, and are
    // ignored by every program.
    let mut environment = vec![
        ("HAYWARD_STATE".to_owned(), "state".to_owned()),
        ("HAYWARD_TOKEN".to_owned(), "token".to_owned()),
        ("HAYWARD_ADMIN_URL".to_owned(), "postgres:///x".to_owned()),
        ("HAYWARD_ALLOCATION".to_owned(), "alc_1".to_owned()),
        ("HAYWARD_TASK".to_owned(), "build".to_owned()),
        ("HAYWARD_BLOCKLIST_PORT".to_owned(), "7404".to_owned()),
        ("OTEL_SERVICE_NAME".to_owned(), "fleet".to_owned()),
    ];
    for (program, setting) in settings() {
        let specific = program.to_uppercase().replace('-', "_");
        let specific = setting
            .variable()
            .replacen("HAYWARD", &format!("HAYWARD_{specific}"), 1);
        if setting.default != "none" {
            environment.push((setting.variable(), setting.default.clone()));
            environment.push((specific, setting.default));
        }
    }
    for program in Program::value_variants() {
        let arguments = ["config", "check", program_name(*program)];
        let result = hayward(&arguments, &environment);
        assert!(result.status.success(), "{}", to_text(&result.stderr));
        let misspelled = ("HAYWARD_HEARTBAET_MS".to_owned(), "1".to_owned());
        let result = hayward(
            &arguments,
            &[environment.as_slice(), &[misspelled]].concat(),
        );
        let output = to_text(&result.stderr);
        assert!(!result.status.success(), "{arguments:?}");
        assert!(
            output.contains("HAYWARD_HEARTBAET_MS")
                && output.contains("mean HAYWARD_HEARTBEAT_MS?"),
            "{output}"
        );
    }
}

#[test]
fn settings_are_explained_by_the_command_and_by_the_help_of_their_program() {
    let result = hayward(&["config", "explain", "HAYWARD_SUSPECT_MS"], &[]);
    let output = to_text(&result.stdout);
    assert!(result.status.success(), "{}", to_text(&result.stderr));
    assert!(
        output.contains("[15000]") && output.contains("Milliseconds of silence"),
        "{output}"
    );
    assert!(
        output.contains("Programs: node-status") && !output.contains("(G5)"),
        "{output}"
    );
    let help = to_text(&hayward(&["run", "node-status", "--help"], &[]).stdout);
    let agent = to_text(&hayward(&["node-agent", "agent", "--help"], &[]).stdout);
    assert!(agent.contains("Thousandths of a gpu"), "{agent}");
    for setting in program_settings(Program::NodeStatus).expect("settings") {
        let first_word = setting.meaning.split(' ').next().expect("a word");
        let line = format!(
            "{}  {}  [{}]",
            setting.flag(),
            setting.variable(),
            setting.default
        );
        let (_, after) = help
            .split_once(&line)
            .unwrap_or_else(|| panic!("{line}: {help}"));
        assert!(after.trim_start().starts_with(first_word), "{line}: {help}");
    }
    let result = hayward(
        &["config", "explain", "--json", "--program", "blocklist"],
        &[],
    );
    let all: serde_json::Value = serde_json::from_slice(&result.stdout).expect("JSON");
    let count = program_settings(Program::Blocklist)
        .expect("settings")
        .len();
    assert_eq!(all["settings"].as_array().map(Vec::len), Some(count));
    let result = hayward(&["config", "explain", "no_such"], &[]);
    assert!(!result.status.success() && to_text(&result.stderr).contains("no_such"));
}
