//! All names that a program of the fleet knows, so that one environment serves all programs.
//!
//! `names.txt` is generated from the definitions. It contains every setting with its programs, and
//! every other variable that the programs or the compose file read. A test of the `hayward` crate,
//! which contains all programs, keeps it up to date.

const NAMES: &str = include_str!("names.txt");
/// Prefix of all our environment variables.
pub const PREFIX: &str = "HAYWARD_";
/// Prefix of variables for the tests of this repository. No program reads them.
const TEST_PREFIX: &str = "TEST_";
/// Minimum similarity of a name that is suggested for a misspelled one.
const MIN_SIMILARITY: f64 = 0.6;

/// One name of the list.
enum KnownName<'a> {
    Setting { name: &'a str, program: &'a str },
    Variable(&'a str),
}

fn known_names() -> impl Iterator<Item = KnownName<'static>> {
    NAMES.lines().filter_map(|line| {
        let mut words = line.split(' ');
        match (words.next()?, words.next()?, words.next()) {
            ("setting", name, Some(program)) => Some(KnownName::Setting { name, program }),
            ("variable", name, None) => Some(KnownName::Variable(name)),
            _ => None,
        }
    })
}

/// Returns the name as part of a variable, in upper case.
pub fn to_variable(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

/// Returns the settings of all programs.
pub fn settings() -> impl Iterator<Item = &'static str> {
    known_names().filter_map(|known| match known {
        KnownName::Setting { name, .. } => Some(name),
        KnownName::Variable(_) => None,
    })
}

pub fn is_setting(name: &str) -> bool {
    settings().any(|known| known == name)
}

/// Returns every variable that a program knows, with its prefix.
pub fn variables() -> impl Iterator<Item = String> {
    known_names().flat_map(|known| match known {
        KnownName::Setting { name, program } => {
            let (name, program) = (to_variable(name), to_variable(program));
            vec![
                format!("{PREFIX}{name}"),
                format!("{PREFIX}{program}_{name}"),
            ]
        }
        KnownName::Variable(name) => vec![name.to_owned()],
    })
}

/// Returns whether a program knows the variable with this suffix after the prefix.
pub fn is_known(suffix: &str) -> bool {
    if suffix.starts_with(TEST_PREFIX) {
        return true;
    }
    let variable = format!("{PREFIX}{suffix}");
    let without_file = variable.strip_suffix("_FILE");
    known_names().any(|known| match known {
        KnownName::Variable(name) => name == variable,
        KnownName::Setting { name, program } => {
            let (name, program) = (to_variable(name), to_variable(program));
            let names_setting = |variable: &str| {
                let suffix = variable.strip_prefix(PREFIX).unwrap_or(variable);
                let own = suffix
                    .strip_prefix(&program)
                    .and_then(|own| own.strip_prefix('_'));
                suffix == name || own == Some(&name)
            };
            names_setting(&variable) || without_file.is_some_and(names_setting)
        }
    })
}

/// Returns the end of an error message: the known name most similar to the wrong one. Returns an
/// empty text if no name is similar.
pub fn suggestion(wrong: &str, known: impl Iterator<Item = String>) -> String {
    let candidates = known.map(|name| (strsim::normalized_damerau_levenshtein(wrong, &name), name));
    // The first of several equally similar names wins. A program lists its own names first.
    let best = candidates.fold(None, |best: Option<(f64, String)>, candidate| match best {
        Some(best) if best.0 >= candidate.0 => Some(best),
        _ => Some(candidate),
    });
    match best.filter(|(similarity, _)| *similarity >= MIN_SIMILARITY) {
        Some((_, name)) => format!("; did you mean {name}?"),
        None => String::new(),
    }
}
