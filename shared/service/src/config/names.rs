//! All names that a program of the fleet knows, so that one environment serves all programs.
//!
//! `names.txt` is generated from the definitions. It contains every setting with its programs, and
//! every other variable that the programs or the compose file read. A test of the `hayward` crate,
//! which contains all programs, keeps it up to date.

const NAMES: &str = include_str!("names.txt");
/// Prefix of all our environment variables.
pub const PREFIX: &str = "HAYWARD_";
/// Prefix of variables for the tests of this repository. No program reads them.
const TESTS: &str = "TEST_";
/// Minimum similarity of a name that is suggested for a misspelled one.
const ALIKE: f64 = 0.6;

/// One name of the list.
enum KnownName<'a> {
    Setting { name: &'a str, program: &'a str },
    Variable(&'a str),
}

fn lines() -> impl Iterator<Item = KnownName<'static>> {
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
pub fn variable(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

/// Returns the settings of all programs.
pub fn settings() -> impl Iterator<Item = &'static str> {
    lines().filter_map(|line| match line {
        KnownName::Setting { name, .. } => Some(name),
        KnownName::Variable(_) => None,
    })
}

pub fn is_setting(name: &str) -> bool {
    settings().any(|known| known == name)
}

/// Returns every variable that a program knows, with its prefix.
pub fn variables() -> impl Iterator<Item = String> {
    lines().flat_map(|line| match line {
        KnownName::Setting { name, program } => {
            let (name, program) = (variable(name), variable(program));
            vec![
                format!("{PREFIX}{name}"),
                format!("{PREFIX}{program}_{name}"),
            ]
        }
        KnownName::Variable(name) => vec![name.to_owned()],
    })
}

/// Returns whether a program knows this variable. It is given without prefix.
pub fn is_known(rest: &str) -> bool {
    if rest.starts_with(TESTS) {
        return true;
    }
    let whole = format!("{PREFIX}{rest}");
    let value = whole.strip_suffix("_FILE");
    lines().any(|line| match line {
        KnownName::Variable(name) => name == whole,
        KnownName::Setting { name, program } => {
            let (name, program) = (variable(name), variable(program));
            let is = |it: &str| {
                let it = it.strip_prefix(PREFIX).unwrap_or(it);
                let own = it
                    .strip_prefix(&program)
                    .and_then(|it| it.strip_prefix('_'));
                it == name || own == Some(&name)
            };
            is(&whole) || value.is_some_and(is)
        }
    })
}

/// Returns the end of an error message: the known name most similar to the wrong one. Returns an
/// empty text if no name is similar.
pub fn nearest(wrong: &str, known: impl Iterator<Item = String>) -> String {
    let alike = known.map(|name| (strsim::normalized_damerau_levenshtein(wrong, &name), name));
    // The first of several equally similar names wins. A program lists its own names first.
    let best = alike.fold(None, |best: Option<(f64, String)>, one| match best {
        Some(best) if best.0 >= one.0 => Some(best),
        _ => Some(one),
    });
    match best.filter(|(alike, _)| *alike >= ALIKE) {
        Some((_, name)) => format!("; did you mean {name}?"),
        None => String::new(),
    }
}
