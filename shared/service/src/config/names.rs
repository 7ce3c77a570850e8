//! The names that any program of a fleet knows, so that one environment can serve them all.
//!
//! They are made from the definitions: `names.txt` has every setting with its programs, and every
//! other variable that the programs or the compose file read. A test of the `hayward` crate, which
//! has all of them inside, keeps it in step.

const NAMES: &str = include_str!("names.txt");
/// Before every variable of ours.
pub const PREFIX: &str = "HAYWARD_";
/// For the tests of this repository; no program reads them.
const TESTS: &str = "TEST_";
/// A name that is further away is no misspelling of it.
const ALIKE: f64 = 0.6;

/// What a line of the list says.
enum Line<'a> {
    Setting { name: &'a str, program: &'a str },
    Variable(&'a str),
}

fn lines() -> impl Iterator<Item = Line<'static>> {
    NAMES.lines().filter_map(|line| {
        let mut words = line.split(' ');
        match (words.next()?, words.next()?, words.next()) {
            ("setting", name, Some(program)) => Some(Line::Setting { name, program }),
            ("variable", name, None) => Some(Line::Variable(name)),
            _ => None,
        }
    })
}

/// A name as variables have it.
pub fn variable(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

/// The settings of all programs.
pub fn settings() -> impl Iterator<Item = &'static str> {
    lines().filter_map(|line| match line {
        Line::Setting { name, .. } => Some(name),
        Line::Variable(_) => None,
    })
}

pub fn is_setting(name: &str) -> bool {
    settings().any(|known| known == name)
}

/// Every variable that some program understands, in full.
pub fn variables() -> impl Iterator<Item = String> {
    lines().flat_map(|line| match line {
        Line::Setting { name, program } => {
            let (name, program) = (variable(name), variable(program));
            vec![
                format!("{PREFIX}{name}"),
                format!("{PREFIX}{program}_{name}"),
            ]
        }
        Line::Variable(name) => vec![name.to_owned()],
    })
}

/// Whether some program understands this variable, given without its prefix.
pub fn is_known(rest: &str) -> bool {
    if rest.starts_with(TESTS) {
        return true;
    }
    let whole = format!("{PREFIX}{rest}");
    let value = whole.strip_suffix("_FILE");
    lines().any(|line| match line {
        Line::Variable(name) => name == whole,
        Line::Setting { name, program } => {
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

/// The end of a refusal: the known name that is most like the wrong one, where any is.
pub fn nearest(wrong: &str, known: impl Iterator<Item = String>) -> String {
    let alike = known.map(|name| (strsim::normalized_damerau_levenshtein(wrong, &name), name));
    // The first of several that are as like: a program names its own first.
    let best = alike.fold(None, |best: Option<(f64, String)>, one| match best {
        Some(best) if best.0 >= one.0 => Some(best),
        _ => Some(one),
    });
    match best.filter(|(alike, _)| *alike >= ALIKE) {
        Some((_, name)) => format!("; did you mean {name}?"),
        None => String::new(),
    }
}
